"""What a name on the command line means: an experiment, a file of settings, or a data set."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from coldstream.lab.yaml_files import read_config

if TYPE_CHECKING:
    from coldstream.lab.config import Settings

_YAML = (".yaml", ".yml")


def experiments_here() -> dict[str, Path]:
    """Return the experiments in ./experiments by name."""
    return {path.stem: path for path in sorted(Path("experiments").glob("*.yaml"))}


def settings_of(text: str) -> Settings:
    """Return the settings that a file or an experiment of that name holds, or those for a data set.

    Where an experiment has the name of a data set, the experiment is meant: it was put there by the user.
    """
    from coldstream.data import DATASETS

    path, named = Path(text), experiments_here()
    data = text in DATASETS or ":" in text or path.exists() or len(path.parts) > 1 or path.suffix == ".zip"
    if path.suffix in _YAML or text in named:
        file = path if path.suffix in _YAML else named[text]
        if not file.is_file():
            raise ValueError(f"there is no file {text!r}")
        return {"name": file.stem, **read_config(file)}
    if not data:
        raise _neither(text, named)
    name = re.sub(r"[^\w.-]+", "-", path.stem if path.exists() else text).strip("-") or "data"
    return {"name": name, "data": {"name": text}}


def _neither(text: str, named: dict[str, Path]) -> ValueError:
    from coldstream.data import DATASETS

    near = [
        f"the {kind} {name!r}"
        for kind, names in (("data set", DATASETS), ("experiment", named))
        for name in difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    ]
    hint = f"did you mean {' or '.join(near)}?" if near else "see coldstream list and coldstream data list"
    return ValueError(f"there is no data set and no experiment {text!r}; {hint}")
