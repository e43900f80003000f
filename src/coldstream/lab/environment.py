"""What a result was computed with: versions, machine, threads, commit."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coldstream.checkpoint import environment


def describe_environment() -> dict[str, Any]:
    """Return versions, machine, threads and the commit of the code that runs."""
    return {**environment(), "coldstream": version("coldstream"), "commit": _commit()}


def _commit() -> str | None:
    """Return the commit of the code that runs, where it runs from a checkout."""
    here = Path(__file__).parent
    try:
        top = subprocess.run(["git", "-C", here, "ls-files", "--error-unmatch", __file__], capture_output=True)
        found = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True)
    except OSError:
        return None
    return found.stdout.strip() if top.returncode == found.returncode == 0 else None
