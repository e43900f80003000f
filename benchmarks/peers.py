"""Others beside us, on the same network, images and batch: Avalanche, and what a careful user would write."""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.measuring import Action, Bench
from benchmarks.workloads import (
    DECAY,
    FULL,
    MOMENTUM,
    RATE,
    SIDE,
    Network,
    filled_learner,
    learning,
    pictures,
)

EXTRA = "uv run --extra peers coldstream bench --peers"
_NEW = 200  # images that come; again from the first after the last


def check_peers() -> None:
    """Refuse to begin without the packages that are measured."""
    missing = [name for name in ("avalanche", "kornia") if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"peers: {' and '.join(missing)} not installed; run {EXTRA}")


class Sizes:
    """Notes how many images a network is given, which must be B + 1."""

    def __init__(self, network: nn.Module) -> None:
        self.seen: set[int] = set()
        network.register_forward_pre_hook(self._note)

    def _note(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.seen.add(len(inputs[0]))


def tensors(count: int) -> tuple[Tensor, Tensor]:
    """Return normalised float32 images (N, 3, 32, 32) and labels."""
    images, labels = pictures()
    which = np.arange(count) % len(images)
    x = torch.from_numpy(images[which]).permute(0, 3, 1, 2).contiguous().float().div_(255).sub_(0.5).div_(0.25)
    return x, torch.from_numpy(labels[which])


def _network(model: str) -> tuple[Network, torch.optim.Optimizer]:
    network = Network(model)
    return network, torch.optim.SGD(network.parameters(), RATE, MOMENTUM, weight_decay=DECAY)


class Reference:
    """The reference step: random rows of a float32 tensor, kornia's batched crop and flip, the update."""

    def __init__(self, model: str, stored: int, mode: str, replay: int) -> None:
        import kornia.augmentation as kornia

        self.network, self.optimiser = _network(model)
        self.images, self.labels = tensors(stored)
        self.new, self.new_labels = tensors(_NEW)
        self.replay = replay
        self.augment = nn.Sequential(
            kornia.RandomCrop((SIDE, SIDE), padding=SIDE // 8, cropping_mode=mode), kornia.RandomHorizontalFlip()
        )
        self._next = itertools.cycle(range(_NEW))

    def __call__(self) -> None:
        i = next(self._next)
        rows = torch.randint(len(self.images), (self.replay,))
        x = torch.cat([self.new[i : i + 1], self.images[rows]])
        y = torch.cat([self.new_labels[i : i + 1], self.labels[rows]])
        loss = F.cross_entropy(self.network(self.augment(x)), y)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()


class Avalanche:
    """`Naive` with `ReplayPlugin` on experiences of one example, without augmentation, loggers or metrics.

    The buffer is laid out as it is after as many such experiences: all are parts of one data set. Task labels are
    given because the class-balanced policy adds them to what it stores, and a batch must be of one kind.
    """

    def __init__(self, model: str, stored: int, policy: str, replay: int) -> None:
        from avalanche.benchmarks import benchmark_from_datasets
        from avalanche.benchmarks.utils import AvalancheDataset, DataAttribute, as_taskaware_classification_dataset
        from avalanche.training import storage_policy
        from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
        from avalanche.training.supervised import Naive

        self.network, optimiser = _network(model)
        images, labels = tensors(_NEW + stored)
        targets = DataAttribute(labels.tolist(), "targets")
        tasks = DataAttribute([0] * len(labels), "targets_task_labels", use_in_getitem=True)
        plain = AvalancheDataset([torch.utils.data.TensorDataset(images, labels)], data_attributes=[targets, tasks])
        whole = as_taskaware_classification_dataset(plain)  # which makes the class-balanced policy twice as fast
        self.buffer = getattr(storage_policy, policy)(max_size=stored)
        self.buffer.post_adapt(
            None, _experiences(benchmark_from_datasets, [whole.subset(range(_NEW, len(labels)))])[0]
        )
        self._next = itertools.cycle(_experiences(benchmark_from_datasets, [whole.subset([i]) for i in range(_NEW)]))
        self.strategy = Naive(
            model=self.network,
            optimizer=optimiser,
            criterion=nn.CrossEntropyLoss(),
            train_mb_size=1,
            plugins=[ReplayPlugin(mem_size=stored, batch_size=1, batch_size_mem=replay, storage_policy=self.buffer)],
            evaluator=EvaluationPlugin(loggers=[]),
        )

    def __call__(self) -> None:
        self.strategy.train(next(self._next))


def _experiences(make: Any, datasets: list[Any]) -> list[Any]:
    return list(make(train=datasets).train_stream)


def peers(bench: Bench) -> None:
    """Whole steps beside each other. Avalanche does not augment, the reference step only crops and flips."""
    for model in ("linear", "resnet8-16"):
        with warnings.catch_warnings(record=True, action="ignore"):  # Avalanche warns at every step
            _beside_ours(bench, model)


def _beside_ours(bench: Bench, model: str) -> None:
    stored, replay = bench.scale.stored, bench.scale.replay
    ways: dict[str, Action] = {}
    watched = {}
    ours = {"learn_one, full policy": FULL, "learn_one, crop, flip": "crop|flip"}
    for name, augment in ours.items():
        learner = filled_learner(bench, stored, model=model, augment=augment)
        ways[name], watched[name] = learning(learner), Sizes(learner.engine.body)
    references = {f"reference step, kornia's {mode}": mode for mode in ("slice", "resample")}
    for name, mode in references.items():
        reference = Reference(model, stored, mode, replay)
        ways[name], watched[name] = reference, Sizes(reference.network)
    theirs = {
        f"Avalanche, {count:,} stored, {policy}": (count, kind)
        for count in (stored // 5, stored)
        for policy, kind in (("reservoir", "ReservoirSamplingBuffer"), ("class-balanced", "ClassBalancedBuffer"))
    }
    for name, (count, kind) in theirs.items():
        avalanche = Avalanche(model, count, kind, replay)
        ways[name], watched[name] = avalanche, Sizes(avalanche.network)
    times = bench.measure(f"{model}, peers", ways)
    for name, sizes in watched.items():
        if sizes.seen != {replay + 1}:
            raise RuntimeError(f"{name} was measured on batches of {sorted(sizes.seen)}, not of {replay + 1}")
    best = times.fastest(references)
    times.taken["reference step"] = times.taken[best]
    bench.rows.append(times.row("peers", model, "reference step", note=best.removeprefix("reference step, ")))
    bench.rows += [times.row("peers", model, name, "reference step") for name in ours]
    bench.rows += [times.row("peers", model, name, "learn_one, full policy") for name in theirs]
