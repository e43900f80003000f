"""Addresses of results: a hash of everything that a result depends on. Equal work is shared, different work never."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


@lru_cache
def code_version(*modules: str, alone: str | None = None) -> str:
    """Return a hash of the code of modules of this package, and of all in it that they import.

    `alone` is a module whose imports do not count. A change of code that could change a result changes the hash.
    Comments, docstrings and layout do not. A method that is added leaves the results of the others valid.
    """
    digest = hashlib.sha256()
    beside = {file for name in (alone,) if name and (file := _file(name))}
    for file in sorted(sources(*modules) | beside):
        digest.update(str(file.relative_to(_ROOT)).encode() + b"\0" + code_of(file) + b"\0")
    return digest.hexdigest()[:16]


def code_of(file: Path) -> bytes:
    """Return the syntax tree of a Python file without docstrings, as text; another file's bytes as they are."""
    if file.suffix != ".py":
        return file.read_bytes()
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):  # a string that stands alone does nothing: docstrings, also those of attributes
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return ast.dump(tree).encode()


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


@lru_cache
def sources(*modules: str) -> frozenset[Path]:
    """Return the files of modules and of everything in this package that they import, at the top or later."""
    files = _closure([file for name in modules if (file := _file(name))], _imported)
    compiled = {file.with_name("kernels.c") for file in files if file.name == "native.py"}
    return frozenset(files | compiled)


def _closure(files: Iterable[Path], imported: Callable[[Path], Iterator[Path]]) -> set[Path]:
    """Return files and all that they import, directly or not."""
    closure: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in closure:
            closure.add(file)
            waiting += imported(file)
    return closure


def _imported(file: Path) -> Iterator[Path]:
    """Return the modules of this package that a file imports; not those that it needs for type checking alone."""
    tree = ast.parse(file.read_text())
    for block in _type_checking(tree):
        block.body = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # What is imported from a package may be a module of it, or a name that its __init__ has.
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [part if _file(part) else node.module for part in parts]
            loaded = _loaded_on_use(node.module)
            names += [loaded[alias.name] for alias in node.names if alias.name in loaded]
        yield from (path for name in names if (path := _file(name)))


def _type_checking(tree: ast.AST) -> Iterator[ast.If]:
    """Return the blocks of a file that are for type checking alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield node


@lru_cache
def _loaded_on_use(package: str) -> dict[str, str]:
    """Return in which modules the names are that a package loads when they are asked for: it declares their types."""
    file = _file(package)
    if file is None or file.name != "__init__.py":
        return {}
    blocks = _type_checking(ast.parse(file.read_text()))
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def _file(module: str) -> Path | None:
    if module.split(".")[0] != "coldstream":
        return None
    path = _ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def learner_version(kind: type, job: str = "coldstream.lab.units") -> str:
    """Return a hash of the source that a learner's results depend on, computed by the module `job`.

    It includes the readers of data sets: images that stay in files are decoded while a learner streams. For a class
    outside of this package, it includes the files of the class and of its base classes, and the modules in the same
    folders that these import.
    """
    owners = [owner.__module__ for owner in kind.__mro__ if owner.__module__.startswith("coldstream.")]
    readers = [f"coldstream.data.{file.stem}" for file in (_ROOT / "coldstream" / "data").glob("[a-z]*.py")]
    version = code_version(*sorted({*owners, *readers}), "coldstream.lab.evaluation", alone=job)
    files = [Path(inspect.getfile(owner)) for owner in kind.__mro__ if _is_users(owner.__module__)]
    if not files:
        return version
    digest = hashlib.sha256()
    for file in sorted(_closure(files, _beside)):
        digest.update(file.name.encode() + b"\0" + code_of(file) + b"\0")
    return version + digest.hexdigest()[:16]


def _is_users(module: str) -> bool:
    return module.split(".")[0] not in ("coldstream", "builtins", "abc", "typing")


def _beside(file: Path) -> Iterator[Path]:
    """Return the modules that a file imports and that are in its folder."""
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
        for name in names:
            path = file.parent.joinpath(*name.split("."))
            yield from (one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file())


def content_of(path: Any) -> str | None:
    """Return a hash of a file's content; None if `path` is not the path of a file."""
    if not isinstance(path, (str, Path)) or not Path(path).is_file():
        return None
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def key_of(dependencies: dict[str, Any]) -> str:
    """Return the address of a result: a hash of everything that it depends on."""
    text = json.dumps(_with_names(dependencies), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _with_names(value: Any) -> Any:
    """Replace dicts with keys that JSON does not have, such as counts by (task, label), by sorted pairs."""
    if not isinstance(value, dict):
        return value
    named = {key: _with_names(inner) for key, inner in value.items()}
    return named if all(isinstance(key, str | int) for key in named) else sorted(map(list, named.items()), key=repr)
