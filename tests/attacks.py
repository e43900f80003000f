"""Attacks on checkpoints, many in one process: damage, kills. Each returns counts, and what was not as it should be.

Run in a process of its own, forked from one that has imported torch and computed nothing (`warm`): the kills fork it
again, and one thread a process keeps that safe.
"""

import copy
import json
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch

from coldstream import CSSL, ColdStart
from coldstream.checkpoint import manifest, segments
from interrupting import within

HOSTILE = (
    *(-1, 0, 1, 2, 7, 255, 1 << 31, 1 << 40, 1 << 62, 1 << 63, 10**30, 10**400, 0.5, -0.0, 1e308, float("nan")),
    *(
        float("inf"),
        True,
        False,
        None,
        "",
        "a",
        "x" * 10_000,
        "../x",
        "/etc/passwd",
        "\x00",
        "\ud800",
        "IMAGENET1K_V1",
    ),
    *([], [[]], [0] * 1000, {}, {"a": 1}, [None], "crop|" * 500, "disk", "resnet8-16", "jpeg(50)", "base", "1e9GB"),
)


PYTHON = (sys.prefix, sys.base_prefix)
"""What is imported only when a forged manifest names a network that needs it is here."""


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


def learners():
    """Return learners whose checkpoints differ in kind: raw and packed rows, tasks, averages, blended entries."""
    few = {"replay": 2, "model": "linear", "prefetch": False}
    raw = CSSL(**few, augment="none", capacity=9, evict="uniform")
    raw.learn_many(images(14), [0, 1, 2, "four", (5, True), 6, 7] * 2)
    packed = CSSL(**few, augment="none", codec="jpeg(60)", evict="consolidate-mixup(0.4)", capacity=5)
    for i, image in enumerate(images(10, 1)):
        packed.learn_one(image, i % 3, task="ab"[i % 2], id=f"id {i}")
    default = ColdStart(**few)
    default.learn_many(images(40, 2), [0, 1] * 20)
    return [raw, packed, default]


def places(value, way=()):
    """Give the way to every value within JSON."""
    yield way
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*way, key))


def put(value, way, new):
    for key in way[:-1]:
        value = value[key]
    value[way[-1]] = new


class Checkpoint:
    """A checkpoint in memory, to be damaged and written in the place of the last one."""

    def __init__(self, learner, folder):
        self.kind, self.fingerprint, self.folder = type(learner), learner.fingerprint(), folder
        learner.save(folder)
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.plain = json.loads(self.files["manifest.json"])
        self.places = [*places(self.plain)][1:]
        self.dirty = set()

    def write(self, files):
        for name in self.dirty - files.keys():
            (self.folder / name).unlink(missing_ok=True)
        for name in files.keys() | self.files.keys():
            if name in self.dirty or files.get(name) != self.files.get(name):
                if name in files:
                    (self.folder / name).write_bytes(files[name])
                else:
                    (self.folder / name).unlink(missing_ok=True)
        self.dirty = {name for name in files.keys() | self.files.keys() if files.get(name) != self.files.get(name)}

    def damaged(self, rng):
        """Return files with bytes that a disk, a crash or a careless hand changed."""
        files = dict(self.files)
        name = rng.choice([*files])
        data = bytearray(files[name])
        kind = rng.choice(["flip", "flip", "cut", "longer", "zeros", "gone", "swap", "twice", "noise", "field"])
        if kind == "flip":
            for _ in range(rng.choice([1, 1, 2, 8])):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif kind == "cut":
            del data[rng.randrange(len(data)) :]
        elif kind == "longer":
            data += rng.randbytes(rng.randrange(1, 50))
        elif kind in ("zeros", "noise"):
            start = rng.randrange(len(data))
            length = min(len(data) - start, rng.randrange(1, 600))
            data[start : start + length] = bytes(length) if kind == "zeros" else rng.randbytes(length)
        elif kind == "gone":
            del files[name]
            return kind, files
        elif kind == "swap":
            other = rng.choice([*files])
            files[name], files[other] = files[other], files[name]
            return kind, files
        elif kind == "twice":
            start = rng.randrange(len(data))
            data[start:start] = data[start : start + rng.randrange(1, 200)]
        else:
            plain = copy.deepcopy(self.plain)
            put(plain, rng.choice(self.places), copy.deepcopy(rng.choice(HOSTILE)))
            name, data = "manifest.json", json.dumps(plain, indent=1).encode()
        files[name] = bytes(data)
        return kind, files

    def forged(self, rng):
        """Return files that somebody changed on purpose, with checksums and sizes that are right."""
        files, plain = dict(self.files), copy.deepcopy(self.plain)
        kind = rng.choice(["value", "value", "values", "key", "array", "header", "rows"])
        if kind in ("value", "values"):
            for _ in range(1 if kind == "value" else 3):
                with suppress(KeyError, IndexError, TypeError):  # a value before took this one away
                    put(plain, rng.choice(self.places), copy.deepcopy(rng.choice(HOSTILE)))
        elif kind == "key":
            way = rng.choice(self.places)
            part = plain
            for key in way[:-1]:
                part = part[key]
            del part[way[-1]]
        elif kind == "rows":
            part = rng.choice(plain["segments"])
            self._forge_bytes(files, part, rng)
        elif kind == "header":
            data = files[plain["state"]["file"]]
            (length,) = struct.unpack("<Q", data[:8])
            head = bytearray(data[8 : 8 + length])
            head[rng.randrange(len(head))] = rng.randrange(256)
            self._set(files, plain["state"], data[:8] + bytes(head) + data[8 + length :])
        else:
            arrays = safetensors.numpy.load(files[plain["state"]["file"]])
            name = rng.choice([*arrays])
            array = np.array(arrays[name])
            way = rng.choice(["value", "shape", "kind", "gone", "twice", "empty"])
            if way == "value" and array.size:
                with np.errstate(all="ignore"):
                    array.flat[rng.randrange(array.size)] = rng.choice([-1, 0, 1, 2, 99, 1 << 30])
            elif way == "shape":
                array = array.reshape(1, *array.shape)
            elif way == "kind":
                array = array.astype(rng.choice(["float64", "int8", "uint8", "int64", "float32", "bool"]))
            elif way == "twice":
                array = np.concatenate([array.reshape(-1)] * 2)
            elif way == "empty":
                array = array.reshape(-1)[:0]
            arrays[name] = array
            if way == "gone":
                del arrays[name]
            self._set(files, plain["state"], safetensors.numpy.save(arrays))
        try:
            plain["crc32"] = manifest.checksum(plain)
            files["manifest.json"] = json.dumps(plain).encode()
        except (ValueError, TypeError, RecursionError):
            return self.forged(rng)
        return kind, files

    def _forge_bytes(self, files, part, rng):
        data = bytearray(files[part["file"]])
        start = 8 * rng.randrange(min(len(data) // 8, 4 * part["rows"]))
        data[start : start + 8] = struct.pack("<q", rng.choice([-1, 0, 1, 2, 200, 1 << 40, -(1 << 63)]))
        self._set(files, part, bytes(data))

    def _set(self, files, part, data):
        files[part["file"]] = data
        part["bytes"], part["crc32"] = len(data), zlib.crc32(data)


class Watch:
    """Notes what is opened outside a folder, and what has no place in loading at all."""

    def __init__(self):
        self.folder, self.seen = None, Counter()
        sys.addaudithook(self)

    def __call__(self, event, arguments):
        if self.folder is None:
            return
        if event.split(".")[0] in ("socket", "subprocess", "urllib", "shutil", "pty", "ctypes"):
            self.seen[event] += 1
        if event in (
            "os.system",
            "os.exec",
            "os.fork",
            "os.posix_spawn",
            "os.remove",
            "os.rename",
            "pickle.find_class",
        ):
            self.seen[event] += 1
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.fsdecode(arguments[0])
            scratch = path == tempfile.gettempdir()  # a file without a name, for `storage="disk"`
            code = path.startswith((*PYTHON, "/proc/", "/sys/", "/dev/urandom")) or path.endswith((".py", ".pyc"))
            if not path.startswith(self.folder) and not code and not scratch:
                self.seen[f"open {path[:60]}"] += 1


def damage(count, seed, folder):
    """Load damaged and forged checkpoints, half each."""
    rng, ends, wrong, watch = random.Random(seed), Counter(), [], Watch()
    made = [Checkpoint(learner, Path(folder, str(i))) for i, learner in enumerate(learners())]
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    warnings.simplefilter("ignore")
    tempfile.gettempdir()
    for checkpoint in made:  # what Python reads once
        checkpoint.kind.load(checkpoint.folder)
    for turn in range(count):
        checkpoint = made[turn % len(made)]
        forging = turn // len(made) % 2
        try:
            kind, files = (checkpoint.forged if forging else checkpoint.damaged)(rng)
        except RecursionError:
            continue
        checkpoint.write(files)
        name = f"{'forged' if forging else 'damaged'} {kind}"
        watch.folder = str(checkpoint.folder)
        try:
            with within(30):
                after = checkpoint.kind.load(checkpoint.folder).fingerprint()
        except (ValueError, OSError) as error:
            ends[f"{name}: refused"] += 1
            if isinstance(error, OSError):
                wrong.append([name, turn, repr(error)[:300]])
        except BaseException as error:
            wrong.append([name, turn, repr(error)[:300]])
        else:
            same = after == checkpoint.fingerprint
            ends[f"{name}: {'the same' if same else 'another'}"] += 1
            if not same and not forging:
                wrong.append([name, turn, "another state"])
        watch.folder = None
    return {"ends": dict(sorted(ends.items())), "wrong": wrong[:20], "touched": dict(watch.seen)}


def live(learner, folder, tell, seed):
    """Learn and save until killed; tell what is about to be saved, and what was."""
    rng = random.Random(seed)
    while True:
        for _ in range(rng.randrange(1, 4)):
            learner.learn_one(images(1, rng.randrange(1 << 30))[0], rng.randrange(5))
        state = learner.fingerprint().encode()
        os.write(tell, b"-" + state)
        learner.save(folder, wait=rng.random() < 0.6, verify=rng.random() < 0.1).result()
        os.write(tell, b"+" + state)


def kills(count, seed, folder):
    """Kill processes that learn and save one after the other; load after each."""
    segments.SMALL, segments.LARGE = 0, 600
    rng, ends, wrong = random.Random(seed), Counter(), []
    os.fsync = lambda file: None  # what a kill leaves does not depend on it
    learners()[0].save(folder)
    learner = CSSL.load(folder)
    last = learner.fingerprint()
    for turn in range(count):
        reads, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                live(learner, folder, tell, seed + turn)
            except BaseException as error:
                os.write(tell, b"!" + repr(error).encode()[:3000])
            os._exit(1)
        os.close(tell)
        time.sleep(rng.uniform(0.002, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with open(reads, "rb") as file:
            said = file.read()
        if b"!" in said:
            wrong.append([turn, said[said.index(b"!") :].decode()])
        parts = [(said[i : i + 1], said[i + 1 : i + 65].decode()) for i in range(0, len(said), 65)]
        acknowledged = [state for sign, state in parts if sign == b"+"]
        last = acknowledged[-1] if acknowledged else last
        ends["killed"] += 1
        ends["acknowledged saves"] += len(acknowledged)
        if parts and parts[-1][0] == b"-":
            ends["killed between a save and its acknowledgement"] += 1
        ends["killed while it had the lock"] += (folder / "lock").exists()
        try:
            with within(30):
                learner = CSSL.load(folder)
                loaded = learner.fingerprint()
        except BaseException as error:
            wrong.append([turn, repr(error)[:300]])
            continue
        pending = parts[-1][1] if parts and parts[-1][0] == b"-" else None
        if loaded not in (last, pending):
            wrong.append([turn, "not the acknowledged state"])
        ends["the new one was there before its acknowledgement"] += loaded == pending
        last = loaded
    return {"ends": dict(ends), "wrong": wrong[:20]}


def main(name, count, seed, folder):
    torch.set_num_threads(1)
    folder = Path(folder)
    print(json.dumps({"damage": damage, "kills": kills}[name](int(count), int(seed), folder)))
