"""CORe50: 50 objects of 10 categories, filmed by hand in 11 sessions."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from coldstream.data.dataset import Dataset
from coldstream.data.files import Files, LazyImages, in_memory_if_small, open_files

CATEGORIES = (
    "plug_adapter",
    "mobile_phone",
    "scissor",
    "light_bulb",
    "can",
    "glass",
    "ball",
    "marker",
    "cup",
    "remote_control",
)
OBJECTS_PER_CATEGORY = 5
TEST_SESSIONS = (3, 7, 10)
EVERY = 20
FRAMES_PER_CLIP = 15
_FRAME = re.compile(r"(?:^|/)(s(\d+)/o(\d+)/C_\d+_\d+_(\d+)\.png)$")


def core50(path: str | Path) -> tuple[Dataset, Dataset]:
    """Return CORe50's 128x128 crops at one frame a second; sessions 3, 7 and 10 are the test set.

    The layout is the official one, `s1/o1/C_01_01_000.png`, in a directory or a zip. Filmed at 20 frames a second,
    every 20th stored frame of a clip is taken, 15 at most. Frames are counted by their position in the clip, not by
    their number: 75 of the 550 clips lack single frames and would give only 14 by number.
    """
    files = open_files(Path(path))
    clips: dict[tuple[int, int], list[tuple[int, str, str]]] = defaultdict(list)
    for member in files.images():
        if match := _FRAME.search(member):
            key, session, number, frame = match.groups()
            clips[int(session), int(number)].append((int(frame), key, member))
    if not clips:
        raise ValueError(f"there are no frames in {str(path)!r}; expected s1/o1/C_01_01_000.png and so on")
    limit = OBJECTS_PER_CATEGORY * len(CATEGORIES)
    for session, number in clips:
        if not 1 <= number <= limit:
            raise ValueError(f"{str(path)!r}: object o{number} of session s{session} is not one of o1 to o{limit}")
    test = {clip: frames for clip, frames in clips.items() if clip[0] in TEST_SESSIONS}
    train = {clip: frames for clip, frames in clips.items() if clip[0] not in TEST_SESSIONS}
    return _join(files, train), _join(files, test)


def _join(files: Files, clips: dict[tuple[int, int], list[tuple[int, str, str]]]) -> Dataset:
    rows = [
        (session, number, place, key, member)
        for (session, number), frames in sorted(clips.items())
        for place, (_, key, member) in enumerate(sorted(frames)[::EVERY][:FRAMES_PER_CLIP])
    ]
    objects = np.array([row[1] for row in rows], np.int64)
    return Dataset(
        "core50",
        in_memory_if_small(LazyImages(files, [row[4] for row in rows])),
        (objects - 1) // OBJECTS_PER_CATEGORY,
        CATEGORIES,
        objects=objects,
        sessions=np.array([row[0] for row in rows], np.int64),
        frames=np.array([row[2] for row in rows], np.int64),
        keys=tuple(row[3] for row in rows),
    )
