"""The paper's central claims, each as a single comparison."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.paper import baselines
from coldstream.paper.catalog import Comparison, Ref


@dataclass(frozen=True)
class CentralClaim:
    """A claim that the paper rests on.

    Attributes
    ----------
    experiment
        The name of the experiment of the paper that is about it.
    comparison
        Two learners of it, and the number that is compared here.
    paper
        The metric of `PaperExperiment.numbers` in which the paper reports both.
    searched
        The same comparison in `baselines`, where every method has searched settings and the buffer is small. At lab
        scale it counts more than the paper's experiment.
    """

    text: str
    experiment: str
    comparison: Comparison
    paper: str = "omega_final"
    searched: Comparison | None = None

    def places(self) -> list[tuple[str, str, Comparison]]:
        """Return (scale, experiment, comparison) wherever the claim is tested, those that count more behind."""
        paper = [(scale, self.experiment, self.comparison) for scale in ("lab", "desk")]
        if self.searched is not None:
            paper.insert(1, ("lab", baselines.BASELINES.name, self.searched))
        return paper


def _than(part: str, better: str, worse: str, metric: str = "omega_per_event") -> Comparison:
    ones: tuple[Ref, Ref] = (part, better), (part, worse)
    return Comparison(*ones, metric)


CENTRAL = (
    CentralClaim(
        "From a cold start, CSSL beats the best method that freezes layers",
        "fig:cifar100_cssl",
        _than("CIFAR100", "CSSL, 30 Mb", "REMIND + extra params", "average_accuracy"),
        searched=baselines.FROM_COLD,
    ),
    CentralClaim(
        "Pre-training improves CSSL further",
        "fig:cifar100_cssl",
        _than("CIFAR100", "CSSL + pre-train, 30 Mb", "CSSL, 30 Mb", "average_accuracy"),
        searched=baselines.PRETRAINING,
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
        searched=baselines.POLICY,
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
