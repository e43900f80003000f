"""The rules of the house: rooms import only from the rooms before them, and importing does nothing."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import coldstream

ROOT = Path(coldstream.__file__).parent
SHARED = {"_lazy", "_version", "randomness", "parsing", "images", "encoded", "limits", "labels", "native"}
MAY_KNOW = {
    "data": set(),
    "streams": {"data"},
    "replay": set(),
    "augment": set(),
    "models": set(),
    "metrics": set(),
    "learners": {"data", "replay", "augment", "models", "checkpoint"},
    "lab": {"data", "streams", "replay", "augment", "models", "learners", "metrics", "checkpoint"},
    "report": {"metrics", "lab", "replay", "checkpoint"},
    "paper": {"metrics", "lab", "report", "learners", "checkpoint"},
    "theory": {"data", "replay", "augment", "metrics", "learners", "lab", "report", "checkpoint"},
    "_lazy": set(),
    "_version": set(),
    "checkpoint": {"replay"},
    "images": set(),
    "encoded": set(),
    "limits": set(),
    "labels": set(),
    "native": set(),
    "parsing": set(),
    "randomness": set(),
    "sklearn_adapter": {"learners"},
    "checks": {"data", "learners", "interrupts"},
    "interrupts": set(),
    "serve": {"data", "learners", "metrics", "checkpoint"},
    "cli": {"lab", "checkpoint", "report", "paper", "theory", "serve", "learners", "streams", "data", ""},
    "__init__": {"learners", "sklearn_adapter"},
}


def room(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module == "coldstream"
            yield from ([f"coldstream.{alias.name}" for alias in node.names] if whole else [node.module])


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms(path):
    home = room(path)
    for name in imports(path):
        if name.split(".")[0] != "coldstream":
            continue
        other = [*name.split("."), ""][1]
        assert other == home or other in SHARED or other in MAY_KNOW[home], f"{home} may not import {name}"


def test_the_rooms_have_an_order():
    TopologicalSorter(MAY_KNOW).prepare()  # an error where two rooms may know each other


def test_only_the_command_line_knows_the_benchmarks():
    users = {
        room(path) for path in ROOT.rglob("*.py") for name in imports(path) if name.split(".")[0] == "benchmarks"
    }
    assert users == {"cli"}


def test_every_room_is_listed():
    assert {room(path) for path in ROOT.rglob("*.py")} == MAY_KNOW.keys()


def test_importing_draws_nothing_and_loads_nothing_heavy():
    code = """
import os, random, sys
import numpy as np, torch
before = os.getcwd(), random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()
import coldstream, coldstream.checks, coldstream.lab, coldstream.report, coldstream.paper
after = os.getcwd(), random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()
assert before == after
print([name for name in ("torchvision", "sklearn", "matplotlib", "faiss", "torch._dynamo") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
