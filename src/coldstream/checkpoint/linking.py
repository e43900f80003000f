"""A checkpoint at a second place, without a second copy of its bytes."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from coldstream.checkpoint.files import make_folder, sync_folder
from coldstream.checkpoint.manifest import MANIFEST, read_manifest


def link(source: Path, target: Path) -> None:
    """Let `target` be a checkpoint as `source` is now; one that is there is replaced.

    Files of a checkpoint are never changed, only added and removed. So both places can share them, and learning on
    from one of them leaves the other as it is. Where the file system has no hard links they are copied.
    """
    read_manifest(source)
    make_folder(target.absolute().parent)
    fresh = target.with_name(f"{target.name}.{secrets.token_hex(4)}.tmp")
    before = fresh.with_suffix(".old")
    try:
        fresh.mkdir()
        names = [name.name for name in source.iterdir() if name.suffix in (".bin", ".safetensors")]
        for name in [*names, MANIFEST]:
            _share(source / name, fresh / name)
        sync_folder(fresh)
        if target.exists():
            os.replace(target, before)
        os.replace(fresh, target)
    finally:
        if before.exists() and not target.exists():
            os.replace(before, target)
        for rest in (fresh, before):
            with suppress(OSError):
                shutil.rmtree(rest)
    sync_folder(target.absolute().parent)


def _share(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
        with open(target, "rb") as file:
            os.fsync(file.fileno())
