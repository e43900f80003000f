"""What decoding costs: memory and time of the worst files, alone and in many threads."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from coldstream.encoded import format_of
from coldstream.images import as_array
from coldstream.limits import MAX_MEMORY, MAX_PIXELS, NETWORK_PIXELS, Budget, check_size, pixel_limit
from large_images import LARGE, png

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc"
)

_CHILD = """
import sys
from pathlib import Path
from coldstream.images import as_array
from large_images import LARGE

def memory(kind):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) * 1024

files = Path(sys.argv[1])
for name, make in LARGE.items():
    as_array(make(16))
for file in sorted(files.iterdir()):
    data, before = file.read_bytes(), memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    try:
        as_array(data)
    except ValueError as error:
        print(file.name, 0, error, sep="|")
    else:
        print(file.name, memory("VmHWM") - before, "", sep="|")
"""


def child(code: str, *arguments: object) -> str:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def peaks(folder: Path, files: dict[str, bytes]) -> dict[str, tuple[int, str]]:
    """Return the bytes by which a process grows at most as it decodes each file, or why it was refused."""
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    lines = (line.split("|") for line in child(_CHILD, folder).splitlines())
    return {name: (int(peak), error) for name, peak, error in lines}


@needs_proc
def test_memory_is_what_the_format_says(tmp_path: Path) -> None:
    side = 2000
    files = {name: make(side) for name, make in LARGE.items()}
    for name, (peak, error) in peaks(tmp_path / "files", files).items():
        format = format_of(files[name])
        assert format is not None
        allowed = format.bytes_per_pixel * side**2 + 3 * len(files[name]) + 2_000_000
        assert not error, (name, error)
        assert peak < allowed, f"{name}: {peak / side**2:.1f} bytes per pixel, not {format.bytes_per_pixel}"


@needs_proc
@pytest.mark.slow
def test_memory_of_the_largest(tmp_path: Path) -> None:
    worst = {}
    for name, make in LARGE.items():
        data = make(6900 if name.startswith("webp") else 3150 if name == "bmp, rle" else 8000)
        if len(data) < 16_000_000:
            worst |= peaks(tmp_path / name, {name: data})
    assert len(worst) == len(LARGE) - 1
    for name, (peak, error) in worst.items():
        assert not error, (name, error)
        assert peak < MAX_MEMORY + 10_000_000, f"{name}: {peak:,}"


def test_a_webp_of_34_bytes_does_not_take_a_gigabyte() -> None:
    data = LARGE["webp, lossless"](8000)
    assert len(data) < 100
    with pytest.raises(ValueError, match=r"8000 x 8000 pixels are over the limit of 48,000,000 for WebP; shrink"):
        as_array(data)


@pytest.mark.parametrize("name", ["jpeg", "png, grey", "webp, lossless", "gif", "tiff, grey"])
def test_pixel_limit_for_the_network(name: str) -> None:
    data = LARGE[name](4001)
    with (
        pixel_limit(NETWORK_PIXELS),
        pytest.raises(ValueError, match="4001 x 4001 pixels are over the limit of 16,0"),
    ):
        as_array(data)
    small = np.zeros((101, 101, 3), np.uint8)
    with pixel_limit(10_000):
        with pytest.raises(ValueError, match="over the limit of 10,000; shrink"):
            as_array(small)
        with pixel_limit(10_201):
            as_array(small)
        with pytest.raises(ValueError, match="over the limit"):
            as_array(small)
    as_array(small)


def test_pixel_limit_is_of_one_thread() -> None:
    outside = []
    with pixel_limit(1):
        thread = threading.Thread(target=lambda: outside.append(check_size(8000, 8000)))
        thread.start()
        thread.join()
    assert outside == [None]


@pytest.mark.parametrize("pixels", [0, -1, MAX_PIXELS + 1, 1.5, True, None, "16M"])
def test_pixel_limit_is_checked(pixels: object) -> None:
    with pytest.raises(ValueError, match="a limit of pixels is a whole number from 1 to 64,000,000"):
        pixel_limit(pixels).__enter__()  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------- the budget


def test_budget_is_kept_by_many_threads() -> None:
    budget, used, most = Budget(100, least=10), [0], []
    lock = threading.Lock()

    def work(amount: int) -> None:
        with budget.take(amount):
            with lock:
                used[0] += min(amount, 100)
                most.append(used[0])
            time.sleep(0.002)
            with lock:
                used[0] -= min(amount, 100)

    threads = [threading.Thread(target=work, args=(amount,)) for amount in [30, 60, 100, 45, 10, 5000] * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert len(most) == 30
    assert 50 < max(most) <= 100


def test_small_ones_do_not_wait() -> None:
    budget = Budget(100, least=10)
    with budget.take(100), budget.take(9):
        pass


def test_a_large_one_is_not_overtaken() -> None:
    budget, order = Budget(100, least=10), []

    def work(amount: int) -> None:
        with budget.take(amount):
            order.append(amount)

    threads = [threading.Thread(target=work, args=(amount,)) for amount in (100, 50)]
    with budget.take(50):
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        assert order == []
    for thread in threads:
        thread.join(timeout=20)
    assert order == [100, 50]


def test_a_share_that_an_interrupt_lost_comes_back() -> None:
    budget = Budget(100, least=10)
    lost = budget.take(100)
    lost.__enter__()
    threading.Timer(0.2, lambda: lost.gen.close()).start()  # type: ignore[attr-defined]
    with budget.take(100):
        pass
    abandoned = budget.take(100)
    abandoned.__enter__()
    del abandoned
    gc.collect()
    with budget.take(100):
        pass


def test_an_error_gives_the_share_back() -> None:
    budget = Budget(100, least=10)
    with pytest.raises(KeyError), budget.take(100):
        raise KeyError
    with budget.take(100):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_budget_after_a_fork() -> None:
    child("""
import os, signal
from coldstream.limits import Budget
budget = Budget(100, least=10)
with budget.take(100), budget._shares.change, budget._shares.turn:
    if (pid := os.fork()) == 0:
        signal.alarm(5)
        with budget.take(100):
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
""")


@needs_proc
def test_threads_share_one_memory(tmp_path: Path) -> None:
    """Eight threads with one large image each need the memory of two at most beside their results."""
    side = 1500
    (tmp_path / "image").write_bytes(png(side, 16, 6))
    code = """
import sys, threading
from pathlib import Path
import coldstream.limits, coldstream.images
from coldstream.images import as_array

side = int(sys.argv[2])
coldstream.images.DECODING = coldstream.limits.Budget(2 * 12 * side**2, least=1)

def memory(kind):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) * 1024

data, results = Path(sys.argv[1]).read_bytes(), []
as_array(data)
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
threads = [threading.Thread(target=lambda: results.append(as_array(data)[::500].copy())) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(results) == 8
print(memory("VmHWM") - before)
"""
    peak = int(child(code, tmp_path / "image", side))
    assert peak < (2 * 12 + 8 * 3) * side**2 + 8_000_000, f"{peak / side**2:.1f} bytes a pixel"
