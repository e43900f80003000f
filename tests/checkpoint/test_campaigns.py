"""Many attacks on checkpoints; `COLDSTREAM_CAMPAIGN=2 uv run pytest -m slow tests/checkpoint` makes twice as many.

A few of them are in the fast suite, so that the attacks themselves keep working.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from warm import Warm

TIMES = float(os.environ.get("COLDSTREAM_CAMPAIGN", 1))
CODE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import attacks
attacks.main(*sys.argv[1:])
"""
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def warm():
    with Warm() as warm:
        yield warm


@pytest.fixture
def folder():
    """A folder in memory where there is one: thousands of small files are written."""
    made = tempfile.mkdtemp(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
    yield Path(made)
    shutil.rmtree(made)


def attack(warm, name, count, folder, seed=0):
    code, out, error = warm.start(CODE, name, count, seed, folder / "kept").wait()
    assert code == 0, error[-3000:]
    result = json.loads(out)
    print(json.dumps(result, indent=1))
    assert result["wrong"] == []
    return result


def few_or_many(few, many):
    return [few, pytest.param(int(many * TIMES), marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", few_or_many(120, 50_000))
def test_damaged_and_forged_checkpoints(warm, folder, count):
    """Refused, or the same state; nothing is opened outside the folder, and nothing is run."""
    result = attack(warm, "damage", count, folder)
    assert result["touched"] == {}
    refused = sum(number for name, number in result["ends"].items() if name.endswith("refused"))
    assert refused > 0.6 * count


@pytest.mark.parametrize("count", few_or_many(25, 5_000))
def test_kills_of_a_process_that_learns_and_saves(warm, folder, count):
    """What was acknowledged is there, or what was about to be; and whole."""
    result = attack(warm, "kills", count, folder)
    assert result["ends"]["killed"] == count
    assert result["ends"]["acknowledged saves"] > 0
