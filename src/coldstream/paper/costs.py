"""What a run of CSSL costs at the paper's scale: operations counted in the network, hours on a GPU by arithmetic."""

from __future__ import annotations

from coldstream.learners.properties import operations
from coldstream.paper import EXPERIMENTS
from coldstream.report.tables import Table

RATE = 1e13
"""Floating point operations per second: half of the 19.5 trillion of an A100 in single precision."""
TRAINING = 3
"""Passes of the cost of a forward one in an update: forward, and backward with gradients of maps and weights."""
_SHOWN = ("fig:cifar100_cssl", "T:imagenet_cssl", "T:core50", "tab:mt_stream")


def table() -> Table:
    """Return, for each experiment, what one run of CSSL costs at the paper's scale."""
    lines = [["experiment", "network", "updates", "images per update", "operations", "hours on one GPU", "runs"]]
    for name in _SHOWN:
        experiment = EXPERIMENTS[name]
        where, trees = experiment.setting("paper"), experiment.configs("paper").values()
        network = where.tree["learner"]
        rows = images_per_update(int(where.method["replay"]), len(where.tree.get("tasks", ())))
        total = where.images * rows * TRAINING * operations(str(network["model"]), int(network["size"]))
        runs = sum(len(tree["learners"]) * len(tree["seeds"]) for tree in trees)
        words = f"{network['model']}, {network['size']} px"
        link = f"[{name}](paper/{experiment.slug}.md)"
        hours = f"{total / RATE / 3600:.1f}"
        lines.append([link, words, f"{where.images:,}", f"{rows:g}", f"{total:.1e}", hours, str(runs)])
    return lines


def images_per_update(replay: int, tasks: int) -> float:
    """Return how many images the network is trained on for each new one: with tasks, in a mean over tasks.

    With tasks there are as many rows as are replayed for the task itself and for each before it.

    Examples
    --------
    >>> images_per_update(100, 0), images_per_update(100, 4)
    (101, 250.0)
    """
    return replay * (tasks + 1) / 2 if tasks else replay + 1
