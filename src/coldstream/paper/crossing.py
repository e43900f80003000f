"""Where strong augmentation begins to pay: ours, not the paper's. Images per class by size of the network."""

from __future__ import annotations

from coldstream.paper import common
from coldstream.paper.catalog import Claim, Comparison, Figure, PaperExperiment, Setting, Settings

NETWORKS = {"resnet8-16": "79,000", "resnet10-16": "155,000", "resnet10-32": "617,000"}
LENGTHS = {"resnet8-16": (50, 100, 250, 500), "resnet10-16": (50, 100, 250, 500), "resnet10-32": (50, 100, 250)}
LIGHT, STRONG = "crops and flips", "full policy"


def part(network: str, per_class: int) -> str:
    """Return the name of the part with a network and a length."""
    return f"{network}, {per_class} a class"


def _parts(where: Setting) -> dict[str, Settings]:
    parts = {}
    stored = {"codec": "raw", "capacity": None, "replay": 100}
    for network in NETWORKS:
        for per_class in LENGTHS[network]:
            arms = {
                LIGHT: common.cssl(where, **stored, augment=common.CROPS),
                STRONG: common.cssl(where, **stored, augment=common.FULL),
            }
            parts[part(network, per_class)] = where.experiment(
                arms, data={"per_class": per_class}, learner={"model": network}, offline={"enabled": False}
            )
    return parts


CROSSING = PaperExperiment(
    name="crossing",
    title="Where the lines of augmentation cross",
    varies="the images of each class, and the network's size",
    fixed="ten classes of CIFAR-100 class by class, everything stored raw, B = 100, rates",
    setting=common.long,
    parts=_parts,
    metrics=("final_accuracy", "average_ece"),
    layout="lines",
    numbers={},
    ours=True,
    claims=(
        Claim(
            "On the shortest stream crops and flips are better than the full policy, for every network",
            tuple(
                Comparison((part(net, lengths[0]), LIGHT), (part(net, lengths[0]), STRONG), "final_accuracy")
                for net, lengths in LENGTHS.items()
            ),
        ),
        Claim(
            "On the longest stream the full policy is better, for every network",
            tuple(
                Comparison((part(net, lengths[-1]), STRONG), (part(net, lengths[-1]), LIGHT), "final_accuracy")
                for net, lengths in LENGTHS.items()
            ),
        ),
    ),
    about={"lab": "CIFAR-100 at 16 x 16, 10 classes. The paper has no such experiment."},
    figures=(Figure("crossing", "Full policy less crops and flips, final accuracy"),),
)
