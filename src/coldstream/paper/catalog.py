"""The shape of an experiment of the paper: parts with their settings by scale, claims, the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

Settings = dict[str, Any]

SCALES = ("lab", "desk", "paper")
LOWER_IS_BETTER = ("average_ece",)


@dataclass(frozen=True)
class Setting:
    """What the arms of experiments of one kind have in common, at one scale.

    Attributes
    ----------
    tree
        Settings of an experiment (`coldstream.lab.config.Config`), without `name` and `learners`.
    images, image_bytes
        Images in the stream and bytes of a raw image: shares of a replay buffer are shares of their product.
    method
        Settings of CSSL.
    pretrained
        Settings of a learner that starts pre-trained.
    large
        Settings of a frozen extractor that starts from ImageNet's weights in the paper.
    """

    scale: str
    tree: Settings
    images: int
    image_bytes: int
    method: Settings
    pretrained: Settings = field(default_factory=dict)
    large: Settings = field(default_factory=dict)

    @property
    def lab(self) -> bool:
        return self.scale == "lab"

    def bytes(self, paper: str, share: float) -> str | int:
        """Return a capacity: the paper's, or at other scales the same share of the raw stream."""
        return paper if self.scale == "paper" else f"{round(share * self.images * self.image_bytes)}B"

    @property
    def desk(self) -> bool:
        return self.scale == "desk"

    def examples(self, share: float) -> int:
        """Return a capacity in examples: a share of those that come."""
        return round(share * self.images)

    def experiment(self, learners: Mapping[str, Settings], **changes: Any) -> Settings:
        """Return an experiment of these learners; `changes` replace or extend sections of the tree."""
        tree = {**self.tree, "learners": {name: dict(arm) for name, arm in learners.items()}}
        for key, value in changes.items():
            before = tree.get(key)
            tree[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
        return tree


Ref = tuple[str, str]
"""(part, learner)."""


@dataclass(frozen=True)
class Comparison:
    """The statement that one learner is better than another in one number of each run; seeds are paired.

    `metric` may be that of one of several tasks: ``accuracy of flowers``. With `share`, already that much of the
    first one's number is better than the other's.
    """

    better: Ref
    worse: Ref
    metric: str = "omega_per_event"
    share: float = 1.0

    @property
    def sign(self) -> int:
        return -1 if self.metric in LOWER_IS_BETTER else 1


@dataclass(frozen=True)
class Claim:
    """What the paper says, or its tables show, in a form that numbers can confirm or refute."""

    text: str
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Figure:
    """A picture beside the table of an experiment.

    `kind` is one of `coldstream.paper.pictures.KINDS`; `options` are what it takes.
    """

    kind: str
    title: str
    options: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class PaperRun:
    """A run of an experiment: some learners of one part; `tree` has their settings."""

    part: str
    learners: tuple[str, ...]
    tree: Settings


@dataclass(frozen=True)
class PaperExperiment:
    """An experiment of the paper: one of its tables or figures.

    Attributes
    ----------
    name
        Its label in the paper's source, or a word for an experiment of ours.
    varies, fixed
        In words: what differs between the arms, and what does not.
    setting
        Scale -> its `Setting`.
    parts
        `Setting` -> settings of each part, by name.
    metrics
        The columns of its table, the most important first.
    numbers
        The paper's, by part, learner and metric: (mean, standard deviation or None).
    about
        In words, by scale: what it has that the paper has not.
    layout
        A table per part; a table per metric, with a column per part; or one table with a line per part and learner.
    measured
        For an experiment that is timed instead of streamed: scale -> what is timed (`benchmarks.timing.pieces`).
    ours
        Whether the paper has no such experiment; then there is none at its scale.
    """

    name: str
    title: str
    varies: str
    fixed: str
    setting: Callable[[str], Setting]
    parts: Callable[[Setting], dict[str, Settings]]
    metrics: tuple[str, ...]
    numbers: Mapping[tuple[str, str, str], tuple[float, float | None]]
    claims: tuple[Claim, ...]
    about: Mapping[str, str]
    figures: tuple[Figure, ...] = ()
    layout: Literal["tables", "columns", "lines"] = "tables"
    measured: Mapping[str, Settings] | None = None
    ours: bool = False

    @property
    def slug(self) -> str:
        """Its name in file names."""
        return self.name.replace(":", "-")

    @property
    def scales(self) -> list[str]:
        """The scales that it is defined at, the smallest first."""
        return [scale for scale in SCALES if scale in self.about or (scale == "paper" and not self.ours)]

    def configs(self, scale: str) -> dict[str, Settings]:
        """Return the settings of every part, with a name that no other part has."""
        if scale not in self.scales:
            raise ValueError(f"{self.name} has no {scale} scale, only {' and '.join(self.scales)}")
        parts = self.parts(self.setting(scale))
        return {
            part: {"name": f"{self.slug}-{scale}" + (f"-{slug(part)}" if len(parts) > 1 else ""), **tree}
            for part, tree in parts.items()
        }

    def claims_at(self, scale: str) -> list[Claim]:
        """Return the claims, each with the comparisons of learners that there are at a scale."""
        if self.measured is not None:
            return list(self.claims)
        arms = {(part, name) for part, tree in self.configs(scale).items() for name in tree["learners"]}
        return [
            replace(claim, comparisons=tuple(one for one in claim.comparisons if {one.better, one.worse} <= arms))
            for claim in self.claims
        ]

    def runs(self, scale: str) -> list[PaperRun]:
        """Return the runs: one per part, and at desk scale, where a run takes hours, one per learner."""
        if scale == "desk":
            return self.alone(scale)
        return [PaperRun(part, tuple(tree["learners"]), tree) for part, tree in self.configs(scale).items()]

    def alone(self, scale: str) -> list[PaperRun]:
        """Return a run for each learner; it shares its jobs with the run of its part."""
        return [
            PaperRun(part, (name,), {**tree, "name": f"{tree['name']}-{slug(name)}", "learners": {name: arm}})
            for part, tree in self.configs(scale).items()
            for name, arm in tree["learners"].items()
        ]


def slug(text: str) -> str:
    """Return a text as part of a file's name.

    Examples
    --------
    >>> slug("class iid, pre-trained")
    'class-iid-pre-trained'
    """
    return "-".join("".join(c if c.isalnum() or c in "-." else " " for c in text).split())


def each_better(
    part: str, better: Sequence[str] | str, worse: Sequence[str] | str, **more: Any
) -> tuple[Comparison, ...]:
    """Return that each of some learners is better than each of others in a part."""
    ones, others = ([names] if isinstance(names, str) else list(names) for names in (better, worse))
    return tuple(Comparison((part, one), (part, other), **more) for one in ones for other in others)


def ordered(part: str, learners: Sequence[str], **more: Any) -> tuple[Comparison, ...]:
    """Return that each learner of a part is better than the next."""
    return tuple(Comparison((part, one), (part, other), **more) for one, other in pairwise(learners))
