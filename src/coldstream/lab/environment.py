"""What a result was computed with: versions, processor, threads, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coldstream.lab.records import Environment

_LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Environment variables that let torch and oneDNN use less than the processor can."""


def describe_environment() -> Environment:
    """Return versions, processor, threads and the commit of the code that runs."""
    from coldstream.checkpoint import environment

    fields = {**environment(), **_code(), "processor": processor(), "instructions": _instructions()}
    return Environment.model_validate({**fields, "coldstream": version("coldstream")})


@cache
def processor() -> str | None:
    """Return the name of the processor's model."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor()) or None


def _instructions() -> str:
    """Return the instruction set that torch chose on this processor, and the limits that the user set."""
    import torch

    limits = [f"{name}={os.environ[name]}" for name in _LIMITS if name in os.environ]
    return ", ".join([torch.backends.cpu.get_cpu_capability(), *limits])


@cache
def _code() -> dict[str, Any]:
    """Return the commit of the code that runs, where it runs from a clone, and whether the code differs from it."""
    package = Path(__file__).parents[1]

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", package, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--", "."))}
    except (OSError, subprocess.CalledProcessError):
        return {}
