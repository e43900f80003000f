"""How long the labelling page takes from a key to the next image, in a real browser, while the network learns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.browsing import Server, chromium, wait_until
from benchmarks.measuring import Bench, Row, spread

if TYPE_CHECKING:
    from playwright.sync_api import Page

SIZE = 64
CLASSES = 10
PACES = {"one label per second": 1.0, "five labels per second": 0.2}
_MOST_STORED = 2_000

_WATCH = """() => {
  window.delays = [];
  const stage = document.getElementById("stage");
  addEventListener("keydown", (event) => {
    const before = stage.dataset.image;
    const look = () => {
      const picture = document.querySelector("#picture img");
      if (stage.dataset.image !== before && picture?.complete) {
        // The frame that this callback belongs to is painted right after it: the next task is past it.
        setTimeout(() => window.delays.push(performance.now() - event.timeStamp));
      } else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  }, true);
}"""


def page(bench: Bench) -> None:
    """Milliseconds from a key to the frame that shows the next image, at two paces, with images of 64 pixels.

    At the slower pace the learner has usually learned each label before the next one; at the faster one it always
    learns while keys are pressed. Checkpoints are written in the background at both.
    """
    labels = max(20, bench.scale.streamed)
    folder = bench.folder / "page"
    server = Server(folder / "projects")
    write_project(folder, "page", min(_MOST_STORED, 3 * labels + 200))
    server.start()
    try:
        with chromium() as browser:
            view = browser.new_page(viewport={"width": 1280, "height": 800})
            view.goto(f"{server.url}/?project=page")
            view.wait_for_selector("#picture img")
            for number in range(CLASSES):
                if view.evaluate("document.activeElement.tagName") != "INPUT":
                    view.keyboard.press("/")
                view.keyboard.type(f"class {number}")
                view.keyboard.press("Shift+Enter")
            view.evaluate(_WATCH)
            rng = np.random.default_rng(0)
            for pace, seconds in PACES.items():
                count = labels if seconds < 1 else max(10, labels // 2)
                behind: list[int] = []
                saved = server.status("page")["saved"]
                for _ in bench.track(f"page: {pace}", range(count)):
                    view.keyboard.press(str(rng.integers(1, CLASSES)))
                    view.wait_for_timeout(1e3 * seconds)
                    if len(behind) < count // 10 + 1 or rng.random() < 0.1:
                        behind.append(server.status("page")["learning"]["behind"])
                delays = take(view, count)
                after = server.status("page")
                note = (
                    f"{count} keys; the learner was {np.mean(behind):.1f} labels behind on average; "
                    f"checkpoints: {'written' if after['saved'] > saved else 'none'}"
                )
                bench.rows += rows(pace, delays, note)
    finally:
        server.stop()


def take(view: Page, count: int) -> NDArray[np.float64]:
    """Return the delays of the last keys, all of which must have led to another image."""
    wait_until(lambda: view.evaluate("window.delays.length") >= count, f"{count} keys led to another image")
    delays = view.evaluate("window.delays.splice(0)")
    return np.array(delays)


def rows(pace: str, delays: NDArray[np.float64], note: str) -> list[Row]:
    """Return the median and the 99th percentile, with the spread of a bootstrap for the latter."""
    rng = np.random.default_rng(0)
    again = rng.choice(delays, (500, len(delays)))
    _, low, high = spread(np.percentile(again, 99, axis=1))
    tail, most = float(np.percentile(delays, 99)), float(delays.max())
    return [
        Row("page", f"{pace}, {SIZE} px", "key to next image", *spread(delays), note=note),
        Row("page", f"{pace}, {SIZE} px", "key to next image, 99th percentile", tail, low, high),
        Row("page", f"{pace}, {SIZE} px", "key to next image, slowest", most, most, most),
    ]


def write_project(folder: Path, name: str, count: int) -> None:
    """Begin a project with coloured noise as JPEG files, which cost as much as photographs."""
    from coldstream.serve.project import Project

    photos = folder / "photos"
    photos.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(count):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        fine = Image.fromarray(coarse).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
        fine.save(photos / f"{number:05}.jpg", quality=90)
    project = Project(folder / "projects" / name, name, photos)
    project.scan()
    project.close()
