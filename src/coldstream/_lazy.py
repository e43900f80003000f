"""Names that are imported when they are first asked for: commands that do not compute do not load torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return whether a value is a torch tensor; where torch is not loaded, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def attribute_loader(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: `modules` says in which of its modules each name is."""

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


class FunctionsOf:
    """The functions of a module, which is imported when the first of them is called.

    Examples
    --------
    >>> posix = FunctionsOf("posixpath")
    >>> posix.join("a", "b")
    'a/b'
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            return getattr(import_module(self._module), name)(*arguments, **named)

        return call


class Registry(MutableMapping[str, T]):
    """Objects by name, each given as ``module:attribute`` and imported when it is first looked up.

    Examples
    --------
    >>> registry: Registry[Any] = Registry({"join": "posixpath:join"})
    >>> list(registry), registry["join"]("a", "b")
    (['join'], 'a/b')
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places: dict[str, str] = dict(places)
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            module, _, attribute = self._places[name].partition(":")
            self._loaded[name] = getattr(import_module(module), attribute)
        return self._loaded[name]

    def __setitem__(self, name: str, value: T) -> None:
        self._places[name] = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"
        self._loaded[name] = value

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._loaded.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
