"""The paper's central claims, each as a single comparison."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.paper.catalog import Comparison, Ref


@dataclass(frozen=True)
class CentralClaim:
    """A claim that the paper rests on.

    Attributes
    ----------
    experiment
        The name of the experiment that decides it.
    comparison
        Two learners of it, and the number that is compared here.
    paper
        The metric of `PaperExperiment.numbers` in which the paper reports both.
    """

    text: str
    experiment: str
    comparison: Comparison
    paper: str = "omega_final"


def _than(part: str, better: str, worse: str, metric: str = "omega_per_event") -> Comparison:
    ones: tuple[Ref, Ref] = (part, better), (part, worse)
    return Comparison(*ones, metric)


CENTRAL = (
    CentralClaim(
        "From a cold start, CSSL beats the best method that freezes layers",
        "fig:cifar100_cssl",
        _than("CIFAR100", "CSSL, 30 Mb", "REMIND + extra params", "average_accuracy"),
    ),
    CentralClaim(
        "Pre-training improves CSSL further",
        "fig:cifar100_cssl",
        _than("CIFAR100", "CSSL + pre-train, 30 Mb", "CSSL, 30 Mb", "average_accuracy"),
    ),
    CentralClaim(
        "Full plasticity: training all layers is better than training the head",
        "fig:layer_freeze",
        _than("CIFAR100", "0% frozen", "100% frozen", "final_accuracy"),
    ),
    CentralClaim(
        "Mixup, CutMix and AutoAugment together are better than crops and flips",
        "T:data_aug",
        _than("policies", "MU + CM + AA", "none"),
    ),
    CentralClaim(
        "This augmentation calibrates CSSL",
        "tab:cc_cifar100",
        _than("CIFAR100", "CSSL, 150 Mb", "CSSL, no aug., 150 Mb", "average_ece"),
        paper="average_ece",
    ),
    CentralClaim(
        "In equal bytes, compressed images are better than raw ones",
        "T:compress",
        _than("CIFAR100", "6 bit, 66%", "8 bit, 100%"),
    ),
    CentralClaim(
        "In equal bytes, compressed images are better than merged ones",
        "T:smart_evict",
        _than("CIFAR100", "6 bit, 66%", "CutMix"),
    ),
    CentralClaim(
        "Random eviction is better than a reservoir",
        "T:reservoir",
        _than("CIFAR100", "random, 30 Mb", "reservoir, 30 Mb"),
    ),
    CentralClaim(
        "On a stream of tasks, cold CSSL beats REMIND on the last task",
        "tab:mt_stream",
        _than("cold", "CSSL", "REMIND", "accuracy of FGVC"),
        paper="accuracy of FGVC",
    ),
)
