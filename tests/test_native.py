"""The compiled kernels: built where a compiler is, and done without where none is."""

import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from coldstream import native

needs_kernels = pytest.mark.skipif(not native.available(), reason=f"no compiled kernels: {native.state()}")

ASK = """
import numpy as np
from coldstream import native
from coldstream.replay.packing import unpack_high
print(native.state())
print(unpack_high(np.array([[0b10100111, 0b10000000]], np.uint8), 3, 3).tolist())
"""


def ask(**environment):
    done = subprocess.run(
        [sys.executable, "-c", ASK], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    state, values = done.stdout.splitlines()
    assert values == str([[0b10100000, 0b00100000, 0b11100000]])
    return state


def test_switched_off_everything_works():
    assert ask(COLDSTREAM_NATIVE="off") == "switched off by COLDSTREAM_NATIVE"


def test_a_compiler_that_does_not_work_is_done_without(tmp_path):
    assert "'false' did not work" in ask(CC="false", XDG_CACHE_HOME=str(tmp_path))
    assert list((tmp_path / "coldstream").iterdir()) == []


@needs_kernels
def test_compiled_once_and_for_this_user_alone(tmp_path):
    assert ask(XDG_CACHE_HOME=str(tmp_path)) == "compiled"
    (library,) = (tmp_path / "coldstream").iterdir()
    assert stat.S_IMODE(library.parent.stat().st_mode) == 0o700
    written = library.stat().st_mtime_ns
    assert ask(XDG_CACHE_HOME=str(tmp_path)) == "compiled"
    assert library.stat().st_mtime_ns == written


@needs_kernels
def test_a_cache_that_cannot_be_made_is_done_without(tmp_path):
    (tmp_path / "file").write_text("")
    assert ask(XDG_CACHE_HOME=str(tmp_path / "file")) == "compiled"


@needs_kernels
def test_arrays_with_gaps_are_refused():
    with pytest.raises(ValueError, match="contiguous"):
        native.call("unpack", np.zeros((4, 4), np.uint8)[:, ::2], 4, 2, 2, 6, np.zeros((4, 2), np.uint8))
