"""Reading YAML files of settings, without what checks them: `coldstream list` shows files that it does not run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 200_000
"""How large a file of settings may be."""
MAX_VALUES = 100_000
"""How many values it may stand for."""


class Loader(yaml.SafeLoader):
    """YAML's safe loader, for which 1e-3 is a number too, as in YAML 1.2, and which bounds what aliases stand for."""

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        sizes: dict[int, int] = {}

        def size(node: yaml.Node) -> int:
            """Return how many values a node is with its aliases written out."""
            if id(node) not in sizes:
                sizes[id(node)] = MAX_VALUES + 1  # while it is being counted: an alias inside of itself has no end
                below = node.value if isinstance(node, yaml.CollectionNode) else ()
                children = [child for one in below for child in (one if isinstance(one, tuple) else (one,))]
                sizes[id(node)] = 1 + sum(map(size, children))
            return sizes[id(node)]

        if node is not None and size(node) > MAX_VALUES:
            raise yaml.YAMLError(f"it stands for more than {MAX_VALUES:,} values; write it without aliases")
        return node


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_config(path: Path) -> dict[str, Any]:
    """Read a YAML file into a tree of settings."""
    with open(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path} has more than {MAX_BYTES:,} bytes, the limit of a config")
    try:
        tree = yaml.load(data.decode(), Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not YAML of a config: {error}") from error
    if not tree:
        raise ValueError(f"{path} is empty; write at least one setting into it, such as data: {{name: digits}}")
    if not isinstance(tree, dict):
        raise ValueError(f"{path}: a config is a tree of settings, not {type(tree).__name__}")
    return tree
