"""How OpenMP's threads wait is set before torch loads, unless the user has set it."""

import os
import subprocess
import sys

import pytest

NAMES = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")
OURS = ["3000", "0", None]


def waiting(code, **given):
    """Return the settings in a fresh process after some code."""
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | given
    code = f"import os, sys; {code}; print([os.environ.get(name) for name in {NAMES}], 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    settings, _, torch = done.stdout.strip().rpartition(" ")
    return eval(settings), torch == "True"


def test_it_is_set_before_torch_loads():
    assert waiting("import coldstream") == (OURS, False)
    assert waiting("from coldstream import ColdStart") == (OURS, True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"GOMP_SPINCOUNT": "7"}, ["7", "0", None]),
        ({"KMP_BLOCKTIME": "200"}, ["3000", "200", None]),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, [None, None, "ACTIVE"]),
    ],
)
def test_the_users_own_is_kept(given, expected):
    assert waiting("import coldstream", **given) == (expected, False)


def test_nothing_is_set_where_torch_was_first():
    assert waiting("import torch, coldstream") == ([None] * 3, True)


def test_processes_that_it_starts_inherit_it():
    child = "import os; print(os.environ['GOMP_SPINCOUNT'])"
    inherited = f"subprocess.check_output([sys.executable, '-c', {child!r}])"
    assert waiting(f"import coldstream, subprocess; assert {inherited} == b'3000\\n'")
