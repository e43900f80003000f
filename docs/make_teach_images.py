"""Take the screenshots of docs/teach.md: `uv run python -m docs.make_teach_images PHOTOS`, from the clone.

PHOTOS is a folder of photographs with a folder for each class. A person labels them in a real browser: the truth by
the keyboard, while the network learns.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from benchmarks.browsing import Server, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).resolve().parent / "images" / "teach"
NAME = "photos"
LARGEST = 200_000


def main() -> None:
    """Label photographs, and take a picture of each view."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path, help="a folder with a folder of images for each class")
    parser.add_argument("--labels", type=int, default=240, help="images to label (default 240)")
    given = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        classes = begin(Path(folder), given.photos)
        server = Server(Path(folder) / "projects")
        server.start()
        try:
            with chromium() as browser:
                label(browser, server, classes, given.labels)
                pictures(browser, server)
        finally:
            server.stop()


def begin(folder: Path, photos: Path) -> dict[str, str]:
    """Begin a project with the photographs under neutral names; return each one's class."""
    from coldstream.serve.project import Project

    flat, classes = folder / "photos", dict[str, str]()
    flat.mkdir()
    for place in sorted(path for path in photos.iterdir() if path.is_dir()):
        for file in sorted(place.iterdir()):
            name = f"{len(classes):05}{file.suffix}"
            shutil.copy(file, flat / name)
            classes[name] = place.name
    project = Project(folder / "projects" / NAME, NAME, flat, audit=0.3, learner={"replay": 20})
    project.scan()
    project.close()
    return classes


def label(browser: Browser, server: Server, classes: dict[str, str], count: int) -> None:
    """Label by the keyboard, and one in fifty wrongly, as people do."""
    page = browser.new_page()
    page.goto(f"{server.url}/?project={NAME}")
    for number in range(count):
        page.wait_for_selector('#stage[data-image]:not([data-image=""])')
        image = page.get_attribute("#stage", "data-image")
        right = classes[page.text_content("#file-name") or ""]
        known = page.locator("#classes .name").all_text_contents()
        if number % 50 == 49:
            right = known[number % len(known)]
        if right not in known:
            if page.evaluate("document.activeElement.tagName") != "INPUT":
                page.keyboard.press("/")
            page.keyboard.insert_text(right)
            page.keyboard.press("Shift+Enter")
        elif page.is_enabled("#accept") and page.text_content("#guess-label") == right:
            page.keyboard.press("Enter")
        else:
            page.keyboard.press(str(known.index(right) + 1))
        page.wait_for_function("(image) => document.getElementById('stage').dataset.image !== image", arg=image)
        if number % 10 == 9:
            server.wait_until_learned(NAME)
    page.close()


def pictures(browser: Browser, server: Server) -> None:
    """Take a picture of each view: light and dark, wide and on a phone."""
    for scheme, suffix in (("light", ""), ("dark", "-dark")):
        context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(f"{server.url}/?project={NAME}")
        page.wait_for_selector("#picture img")
        for _ in range(12):  # an image that it has a guess for, and is not quite sure of
            text = (page.text_content("#guess-confidence") or "0").rstrip("%")
            if text.isdigit() and 55 <= int(text) <= 95:
                break
            page.keyboard.press("s")
            page.wait_for_timeout(300)
        page.evaluate("document.getElementById('toast').hidden = true")
        save(page, f"label{suffix}")
        if not suffix:
            page.keyboard.press("g")
            page.wait_for_selector("#gallery li")
            page.select_option("#gallery-class", index=1)
            page.wait_for_timeout(1500)
            for place in (0, 2, 3):
                page.locator("#gallery li").nth(place).click()
            page.locator("#gallery-title").hover()
            save(page, "gallery")
        page.goto(f"{server.url}/?project={NAME}#knows")
        page.wait_for_selector("#curve svg")
        choose_promise(page)
        save(page, f"knows{suffix}")
        context.close()
    phone = browser.new_context(
        viewport={"width": 390, "height": 844}, device_scale_factor=1.5, is_mobile=True, has_touch=True
    )
    page = phone.new_page()
    page.goto(f"{server.url}/?project={NAME}")
    page.wait_for_selector("#picture img")
    save(page, "phone")
    phone.close()


def choose_promise(page: Page) -> None:
    """Ask for the highest accuracy at which the network can label some images by itself."""
    for wanted in ("0.95", "0.9", "0.85", "0.8"):
        page.select_option("#wanted", wanted)
        page.wait_for_timeout(1500)
        if "by itself" in (page.text_content("#promise-line") or ""):
            return


def save(page: Page, name: str) -> None:
    """Save what is on the screen as a small file."""
    page.wait_for_timeout(800)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path, animations="disabled")
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes, more than {LARGEST:,}")
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
