"""The settings of a run as its folder has them, checked against its plan. Nothing that they name is imported."""

from __future__ import annotations

from pathlib import Path

from coldstream.lab.config import Settings
from coldstream.lab.files import Folder, hash_of
from coldstream.lab.plan import Plan
from coldstream.lab.yaml_files import read_config


def saved_settings(path: Path) -> Settings:
    """Return the settings in the config.yaml of a run's folder; refuse them where they are not the planned ones."""
    file, planned = path / "config.yaml", planned_hash(path)
    if planned is not None and hash_of(file.read_bytes()) != planned:
        raise ValueError(
            f"{file} is not the one that this run was planned with: it was damaged or edited. Restore it, or give "
            "the command of the run again, which writes it anew; for other settings choose another --out"
        )
    return read_config(file)


def planned_hash(path: Path) -> str | None:
    """Return the hash of the config that a run was planned with; None where no plan says."""
    folder = Folder(path)
    return folder.read("plan.json", Plan).config if folder.has("plan.json") else None
