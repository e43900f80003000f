"""The settings that each method needs at lab scale, chosen on held-out training images: ours, not the paper's."""

from __future__ import annotations

from typing import Any

from coldstream.lab.config import points
from coldstream.paper import common
from coldstream.paper.catalog import PaperExperiment, Setting, Settings
from coldstream.report.kept import KeptResults, summary_of

HELD_OUT = 100
"""Training images of each class on which a choice is made, and from which nothing is learned."""
BYTES = 200 * 768
"""A tenth of the raw images of the stream."""


def _rates(*highest: float) -> list[str]:
    return [f"linear({rate:g}, {rate / 100:g})" for rate in highest]


GRIDS: dict[str, Settings] = {
    "cssl": {
        "kind": "cssl",
        "codec": common.CODEC,
        "capacity": f"{BYTES}B",
        "weight_decay": 1e-5,
        "grid": {"rate": _rates(0.003, 0.01, 0.03, 0.1, 0.3)},
    },
    "er": {"kind": "er", "capacity": f"{BYTES}B", "grid": {"rate": _rates(0.01, 0.03, 0.1, 0.3)}},
    "er-ace": {"kind": "er-ace", "capacity": f"{BYTES}B", "grid": {"rate": _rates(0.01, 0.03, 0.1, 0.3)}},
    # With weights of 1, the end of the publication's range. With lower ones it ends at chance here: the new examples
    # are all of one class, and weigh too much.
    "der++": {
        "kind": "der++",
        "capacity": f"{BYTES}B",
        "alpha": 1.0,
        "beta": 1.0,
        "grid": {"rate": _rates(0.003, 0.01, 0.03, 0.1)},
    },
    "der++, 10 per update": {
        "kind": "der++",
        "capacity": f"{BYTES}B",
        "alpha": 1.0,
        "beta": 1.0,
        "per_update": 10,
        "grid": {"rate": _rates(0.01, 0.03, 0.1, 0.3)},
    },
    "remind": {
        "kind": "remind",
        "capacity": None,
        "weight_decay": 1e-5,
        "grid": {"rate": _rates(0.03, 0.1, 0.3), "base.epochs": [50, 100, 200, 400]},
    },
    "deep-slda": {
        "kind": "deep-slda",
        "grid": {"base.epochs": [25, 50, 100, 200], "base.rate": [0.03, 0.1, 0.3]},
    },
    "exstream": {
        "kind": "exstream",
        "per_class": BYTES // (20 * 264),  # 64 numbers in float32, and a count
        "grid": {"rate": [5e-4, 2e-3, 8e-3], "base.epochs": [50, 100, 200]},
    },
    "linear-probe": {
        "kind": "linear-probe",
        "capacity": f"{BYTES}B",
        "grid": {"rate": _rates(0.03, 0.1, 0.3, 1), "base.epochs": [50, 100, 200]},
    },
    "gdumb": {
        "kind": "gdumb",
        "capacity": f"{BYTES}B",
        "grid": {"epochs": [50, 100, 200, 400], "rate": [0.02, 0.05, 0.1]},
    },
    "icarl": {"kind": "icarl", "exemplars": None, "grid": {"epochs": [20, 40, 80], "rate": [0.1, 0.2, 0.4]}},
    "e2eil": {
        "kind": "e2eil",
        "exemplars": None,
        "fine_epochs": 15,
        "grid": {"epochs": [10, 20, 40], "rate": [0.05, 0.1, 0.2]},
    },
}
OFFLINE: Settings = {
    "kind": "offline",
    "batch": 64,
    "augment": f"{common.CROPS}|autoaugment(cifar10)",
    "grid": {"epochs": [100, 200, 400], "rate": [0.1, 0.3, 1.0]},
}
UNSETTLED = ("gdumb", "icarl", "e2eil", "offline")
"""Whose choice is at the edge of its grid: longer training may be better still, at minutes per run."""


def setting(scale: str) -> Setting:
    """Return where the search takes place: on the twenty classes of the lab's stream."""
    tree: Settings = {
        "data": {"name": "cifar100", "classes": 20, "per_class": 100, "validation": HELD_OUT},
        "stream": {"test_every": 4},
        "base": {"classes": 4, "batch": 64},
        "learner": {"model": "resnet10-16", "size": 16, "channels": 3, "classes": 20, "normalize": "cifar100"},
        "offline": {"enabled": False},
        "seeds": [0],
        "prequential": False,
        "checkpoint_every": 1000,
        "threads": 1,
    }
    return Setting(scale, tree, 2000, 768, {})


def _parts(where: Setting) -> dict[str, Settings]:
    # A part for each method: what is at the edge of its grid is searched again without the others.
    parts = {
        name: where.experiment(dict(points(name, grid)), learner={"replay": 100}) for name, grid in GRIDS.items()
    }
    parts["offline"] = where.experiment(dict(points("offline", OFFLINE)), stream={"test_every": 20})
    return parts


SEARCH = PaperExperiment(
    name="search",
    title="The settings of each method",
    varies="learning rates, epochs, and the base initialisation of methods that have one",
    fixed="data, order, network, 100 replayed examples per step, at most the bytes of 200 raw images where a method "
    "is limited by bytes",
    setting=setting,
    parts=_parts,
    metrics=("final_accuracy", "average_accuracy"),
    numbers={},
    ours=True,
    claims=(),
    about={
        "lab": "CIFAR-100 at 16 x 16, 20 classes of 100 images, a ResNet of 155,000 parameters, tested on 100 other "
        "training images of each class after every fourth class; the test images have no part in it. The "
        "paper has no such experiment."
    },
)


def chosen(results: KeptResults) -> dict[str, Settings]:
    """Return, for each method, the values with the highest final accuracy; of equals, the first."""
    best = {}
    for name, grid in {**GRIDS, "offline": OFFLINE}.items():
        if name in results.parts:
            values = _values(name, grid)
            best[name] = values[max(values, key=lambda point: _accuracy(results, name, point))]
    return best


def at_the_edge(choice: dict[str, Settings]) -> list[str]:
    """Return which chosen values are the lowest or highest of their grid."""
    grids = {**GRIDS, "offline": OFFLINE}
    return [
        f"{name}: {key}={value}"
        for name, values in choice.items()
        for key, value in values.items()
        if value in (grids[name]["grid"][key][0], grids[name]["grid"][key][-1])
    ]


def _values(name: str, learner: Settings) -> dict[str, dict[str, Any]]:
    """Return the values of each point of a grid by its name."""
    keys = learner["grid"]
    return {point: {key: _of(arm, key) for key in keys} for point, arm in points(name, learner)}


def _of(arm: Settings, key: str) -> Any:
    for part in key.split("."):
        arm = arm[part]
    return arm


def _accuracy(results: KeptResults, part: str, point: str) -> float:
    summary = summary_of(results.values, part, point, "final_accuracy")
    return -1.0 if summary is None else summary.mean
