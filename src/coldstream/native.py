"""The compiled kernels of `kernels.c`, built once per machine by its C compiler.

They only make the data path faster. Without a C compiler, or with ``COLDSTREAM_NATIVE=off`` in the environment, torch
does the same with the same bits. The library is cached in the user's cache folder, under a hash of its source and of
the compiler command.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

_SOURCE = Path(__file__).with_name("kernels.c")
# No contraction: two roundings must stay two, to give the bits of torch.
_FLAGS = ("-O3", "-std=c11", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC")

Kernel = Callable[..., None]


def available() -> bool:
    """Return whether there are compiled kernels; the first call may compile them."""
    return bool(_build()[0])


def state() -> str:
    """Return ``compiled``, or why there are no compiled kernels."""
    return _build()[1]


def call(name: str, *arguments: Any) -> None:
    """Call a kernel with arrays, numbers and None; other threads may run meanwhile.

    A kernel knows neither types nor bounds: arrays must be contiguous, of its types, and large enough.
    """
    _build()[0][name](*(_plain(argument) for argument in arguments))


def _plain(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        if not argument.flags.c_contiguous:
            raise ValueError("kernels take contiguous arrays")
        return argument.__array_interface__["data"][0]  # half the time of argument.ctypes.data
    return argument


@lru_cache(maxsize=1)
def _build() -> tuple[dict[str, Kernel], str]:
    if os.environ.get("COLDSTREAM_NATIVE", "").lower() in ("0", "off", "no"):
        return {}, "switched off by COLDSTREAM_NATIVE"
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform == "win32":
        return {}, "no C compiler was found"
    machine, capability = platform.machine(), torch.backends.cpu.get_cpu_capability()
    if machine in ("x86_64", "AMD64"):
        if not capability.startswith("AVX"):  # torch mixes with fused operations only where the processor has them
            return {}, f"the processor has no AVX2 ({capability})"
        target = ["-mavx2", "-mfma"]
    elif machine in ("arm64", "aarch64"):
        target = []
    else:
        return {}, f"not known to give torch's bits on {machine}"
    try:
        library = _load([*compiler.split(), *_FLAGS, *target])
    except (OSError, subprocess.SubprocessError) as error:
        return {}, f"the C compiler {compiler!r} did not work: {str(error).splitlines()[0]}"
    kernels: dict[str, Kernel] = {}
    for name, signature in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = [_TYPES[letter] for letter in signature]
        function.restype = None
        kernels[name] = function
    return kernels, "compiled"


_TYPES = {"p": ctypes.c_void_p, "l": ctypes.c_int64, "i": ctypes.c_int}
_SIGNATURES = {
    "unpack": "plllip",
    "enlarge": "pplllllipipip",
    "augment": "pplllipppippppp",
    "normalise": "pplllippipppp",
}


def _load(command: list[str]) -> ctypes.CDLL:
    """Return the library; compile it first if it is not in the cache."""
    source = _SOURCE.read_bytes()
    key = hashlib.sha256(source + "\0".join([*command, platform.machine(), sys.platform]).encode()).hexdigest()[:16]
    folder = _cache()
    if folder is None:
        with tempfile.TemporaryDirectory() as private:
            path = Path(private) / "kernels.so"
            _compile(command, path)
            return ctypes.CDLL(str(path))
    path = folder / f"kernels-{key}.so"
    if not path.exists():
        _compile(command, path)
    return ctypes.CDLL(str(path))


def _cache() -> Path | None:
    """Return the cache folder, or None if it cannot be written."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coldstream"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


def _compile(command: list[str], path: Path) -> None:
    """Compile to a temporary file and rename it: another process may do the same at this moment."""
    descriptor, beside = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(descriptor)
    try:
        subprocess.run([*command, "-o", beside, str(_SOURCE), "-lm"], check=True, capture_output=True, timeout=120)
        os.replace(beside, path)
    finally:
        Path(beside).unlink(missing_ok=True)
