"""Draw the rooms of the package and their imports: `uv run python docs/make_architecture.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "coldstream"
DRAWING = ROOT / "docs" / "images" / "architecture.svg"
GROUND = ("_lazy", "encoded", "images", "labels", "limits", "native", "parsing", "randomness", "_version")
"""Modules that every room may import; arrows to them are left out."""
LEFT_OUT = ("__init__",)
BOX, GAP, RISE, EDGE = (120, 34), 24, 84, 20
COLOURS = ("#1f5fa8", "#b3541e", "#2e7d4f", "#7b3fa0", "#a32a4a", "#5b6b7b")
"""Of the arrows, by the room that imports."""
Graph = dict[str, set[str]]


def import_graph() -> Graph:
    """Return the rooms that each room imports, at the top of a file or later."""
    graph: Graph = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        home = _room(file.relative_to(PACKAGE))
        if home in LEFT_OUT or home in GROUND:
            continue
        imported = graph.setdefault(home, set())
        imported |= {room for room in _imports(file) if room not in {home, *LEFT_OUT, *GROUND}}
    return {room: others & graph.keys() for room, others in graph.items()}


def _room(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "coldstream":
            names = [f"coldstream.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        yield from (name.split(".")[1] for name in names if name.startswith("coldstream."))


def reach(graph: Graph, start: str) -> set[str]:
    """Return the rooms that a room imports directly or through others."""
    seen: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        room = waiting.pop()
        if room not in seen:
            seen.add(room)
            waiting += graph[room]
    return seen


def levels(graph: Graph) -> dict[str, int]:
    """Return the layer of each room, above all that it imports; rooms that import each other share one."""
    below = {room: reach(graph, room) for room in graph}
    level: dict[str, int] = {}
    for room in sorted(graph, key=lambda room: (len(below[room] - {room}), room)):
        together = {other for other in below[room] if room in below[other]} | {room}
        under = {other for one in together for other in below[one]} - together
        level[room] = 1 + max((level[other] for other in under), default=-1)
    return level


def arrows(graph: Graph) -> list[tuple[str, str]]:
    """Return the imports that do not follow from others."""
    below = {room: reach(graph, room) for room in graph}

    def implied(room: str, other: str) -> bool:
        between = graph[room] - {other}
        return any(other in below[one] and room not in below[one] and one not in below[other] for one in between)

    return [(room, other) for room in sorted(graph) for other in sorted(graph[room]) if not implied(room, other)]


def draw(graph: Graph) -> str:
    """Return the drawing as SVG."""
    level = levels(graph)
    layers = [sorted(room for room in graph if level[room] == height) for height in range(max(level.values()) + 1)]
    wide = max(len(layer) for layer in layers) * (BOX[0] + GAP) - GAP + 2 * EDGE
    high = len(layers) * RISE + BOX[1] + 2 * EDGE
    place = {}
    for height, layer in enumerate(layers):
        left = (wide - len(layer) * (BOX[0] + GAP) + GAP) / 2
        for number, room in enumerate(layer):
            place[room] = left + number * (BOX[0] + GAP), high - EDGE - BOX[1] - (height + 1) * RISE
    size = f'viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="13"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f'<rect width="{wide}" height="{high}" fill="#ffffff"/>',
    ]
    lines += [_box(*place[room], BOX[0], room, "#eef2f6") for room in sorted(place)]
    ground = "every room: " + ", ".join(name for name in GROUND if name != "_version")
    lines.append(_box(EDGE, high - EDGE - BOX[1], wide - 2 * EDGE, ground, "#f5f5f2"))
    drawn = arrows(graph)
    for room in sorted(graph):  # from left to right, so that arrows of one room do not cross each other
        targets = sorted((other for one, other in drawn if one == room), key=lambda other: place[other])
        for number, other in enumerate(targets, 1):
            sources = sorted((one for one, other_ in drawn if other_ == other), key=lambda one: place[one])
            start = place[room][0] + BOX[0] * number / (len(targets) + 1)
            end = place[other][0] + BOX[0] * (sources.index(room) + 1) / (len(sources) + 1)
            lines.append(
                _arrow((start, place[room][1]), (end, place[other][1]), COLOURS[sorted(graph).index(room) % 6])
            )
    return "\n".join([*lines, "</svg>"]) + "\n"


def _box(x: float, y: float, wide: float, text: str, colour: str) -> str:
    middle = f'x="{x + wide / 2:g}" y="{y + BOX[1] / 2 + 5:g}" text-anchor="middle"'
    shape = f'x="{x:g}" y="{y:g}" width="{wide:g}" height="{BOX[1]}" rx="5" fill="{colour}" stroke="#5b6b7b"'
    return f"<rect {shape}/><text {middle}>{text}</text>"


def _arrow(begin: tuple[float, float], end: tuple[float, float], colour: str) -> str:
    """Draw from the importing room down to the imported one; between rooms of one layer, in an arc above them."""
    (x1, y1), (x2, y2) = begin, end
    if y1 == y2:
        path = f"M{x1:g} {y1:g}C{x1:g} {y1 - 30:g} {x2:g} {y2 - 30:g} {x2:g} {y2:g}"
    else:
        y1 += BOX[1]
        path = f"M{x1:g} {y1:g}C{x1:g} {y1 + 35:g} {x2:g} {y2 - 35:g} {x2:g} {y2:g}"
    head = f"M{x2 - 4:g} {y2 - 8:g}L{x2:g} {y2:g}L{x2 + 4:g} {y2 - 8:g}z"
    return f'<path d="{path}" fill="none" stroke="{colour}"/><path d="{head}" fill="{colour}"/>'


if __name__ == "__main__":
    DRAWING.write_text(draw(import_graph()), encoding="utf-8")
    print(DRAWING.relative_to(ROOT))
