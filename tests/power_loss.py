"""Simulated power losses: what a disk may hold when everything that was not synced may be lost.

A recorded process (`power_recorder.c`) gives a log of all writes, syncs and renames below a folder. `Disk` plays the
log up to a moment. Then of each file everything up to its last sync is there; of the later writes each is there, or
not, or its first blocks are. Of what happened to the names in a folder after its last sync, a beginning is there.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = 512


@dataclass
class Step:
    verb: str
    path: str
    more: str
    data: bytes


def read_log(path):
    """Yield the steps of a log."""
    with open(path, "rb") as file:
        while line := file.readline():
            verb, place, more, length = line.decode().rstrip("\n").split("\t")
            data = file.read(int(length))
            assert len(data) == int(length)
            yield Step(verb, place, more, data)


@dataclass
class Inode:
    """A file: its bytes on disk, and what was done to it since."""

    durable: bytearray = field(default_factory=bytearray)
    since: list = field(default_factory=list)

    def sync(self):
        for change in self.since:
            _apply(self.durable, *change)
        self.since.clear()


class Disk:
    """The files below a folder, as programs see them and as the disk may hold them."""

    def __init__(self, root):
        self.root = root
        self.names = {}
        """What programs see: the inode of each path, None of a folder."""
        self.durable = {}
        """The names that are on disk."""
        self.since = []
        """What was done to names since: (folder, verb, path, inode or other path)."""

    def do(self, step):
        if step.path == self.root and step.verb != "sync":
            return
        getattr(self, "_" + step.verb)(step)

    def _open(self, step):
        if step.path not in self.names:
            self._name("add", step.path, Inode())
        elif step.more == "new":
            self.names[step.path].since.append(("cut", 0, b""))

    def _write(self, step):
        if (inode := self.names.get(step.path)) is not None:
            inode.since.append(("write", int(step.more), step.data))

    def _cut(self, step):
        if (inode := self.names.get(step.path)) is not None:
            inode.since.append(("cut", int(step.more), b""))

    def _sync(self, step):
        inode = self.names.get(step.path)
        if inode is not None:
            inode.sync()
            return
        kept = []
        for change in self.since:
            if change[0] == step.path:
                _rename(self.durable, *change[1:])
            else:
                kept.append(change)
        self.since = kept

    def _mkdir(self, step):
        self._name("add", step.path, None)

    def _unlink(self, step):
        self._name("remove", step.path, None)

    def _rename(self, step):
        assert os.path.dirname(step.path) == os.path.dirname(step.more)
        self._name("rename", step.path, step.more)

    def _name(self, verb, path, other):
        _rename(self.names, verb, path, other)
        self.since.append((os.path.dirname(path), verb, path, other))

    def lose_power(self, draws, target):
        """Write into the folder `target` what the disk may hold."""
        names, folders = dict(self.durable), {}
        for change in self.since:
            folders.setdefault(change[0], []).append(change[1:])
        for changes in folders.values():
            for change in changes[: draws.randint(0, len(changes))]:
                _rename(names, *change)
        for path, inode in sorted(names.items()):
            place = target / os.path.relpath(path, self.root)
            if not place.parent.is_dir() or path.endswith("-shm"):
                continue  # the folder itself is lost; what is only in memory is not on disk
            if inode is None:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(_after_loss(inode, draws))


def _rename(names, verb, path, other):
    if verb == "add":
        names[path] = other
    elif verb == "remove":
        names.pop(path, None)
    elif path in names:
        names[other] = names.pop(path)


def _apply(data, verb, number, part):
    if verb == "cut":
        del data[number:]
        data.extend(bytes(number - len(data)))
    else:
        data.extend(bytes(max(0, number - len(data))))
        data[number : number + len(part)] = part


def _after_loss(inode, draws):
    data, share = bytearray(inode.durable), draws.choice([0.0, 0.5, 0.9, 1.0])
    for verb, number, part in inode.since:
        if draws.random() >= share:
            continue
        if verb == "write" and draws.random() < 0.3:
            part = part[: draws.randint(0, len(part) // _BLOCK) * _BLOCK]
        _apply(data, verb, number, part)
    return bytes(data)


def compile_recorder(folder):
    """Return the compiled recorder, or None without a C compiler."""
    import shutil
    import subprocess

    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "power_recorder.so"
    source = Path(__file__).with_name("power_recorder.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"], check=True)
    return library
