"""Every learner, in several configurations, against every check; and the checks against broken learners."""

import random
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from coldstream import CSSL
from coldstream.checks import check_learner, learner_checks
from coldstream.learners import ER, REMIND, DeepSLDA, EndToEnd, ExStream, GDumb, ICaRL, LinearProbe, Offline


def own_network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def two_parts():
    frozen = nn.Sequential(nn.Conv2d(3, 4, 3, 3), nn.BatchNorm2d(4), nn.ReLU())
    plastic = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(OrderedDict(frozen=frozen, plastic=plastic))


FULL = "crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"
CONFIGURATIONS = {
    "default": lambda: CSSL(replay=6),
    "full policy, packed, evicting": lambda: CSSL(
        replay=6, augment=FULL, codec="resize(0.66)|quantize(6)", capacity="2KB", seed=3
    ),
    "jpeg on disk, class balanced": lambda: CSSL(
        model="linear", replay=6, codec="jpeg(80)", storage="disk", capacity="8KB", sample="class-balanced"
    ),
    "consolidating": lambda: CSSL(model="linear", replay=6, capacity=9, evict="consolidate-mixup(0.4, limit=2)"),
    "reservoir, fixed classes, constant rate": lambda: CSSL(
        model="linear", replay=6, capacity=9, evict="reservoir", classes=8, rate=0.01
    ),
    "own network with dropout": lambda: CSSL(model=own_network, replay=6, augment="crop|randaugment(1, 9)"),
    "disk, uniform eviction, bfloat16": lambda: CSSL(
        model="mlp", replay=6, storage="disk", capacity="4KB", evict="uniform", precision="bfloat16"
    ),
    "base-initialised": lambda: CSSL(model="mlp", init="base", replay=6, augment="none"),
    "er": lambda: ER(model="linear", replay=6, capacity=9),
    "linear probe": lambda: LinearProbe(model="mlp", replay=6, capacity=12, precision="float64"),
    "linear probe on random features": lambda: LinearProbe(model="resnet8-16", init="random", replay=6),
    "icarl": lambda: ICaRL(model="mlp", exemplars=10, epochs=2, batch=8, rate=0.5),
    "icarl, all kept, own network": lambda: ICaRL(model=own_network, exemplars=None, epochs=1, batch=16, rate=0.5),
    "end to end": lambda: EndToEnd(model="mlp", exemplars=10, epochs=2, fine_epochs=1, batch=8, precision="float64"),
    "end to end, all kept, fixed classes": lambda: EndToEnd(
        model="mlp", exemplars=None, epochs=1, fine_epochs=1, batch=16, classes=8, storage="disk"
    ),
    "gdumb": lambda: GDumb(model="mlp", capacity=9, epochs=2),
    "gdumb in bytes, mixing": lambda: GDumb(model="linear", capacity="5KB", epochs=1, augment="crop|cutmix(1.0)"),
    "offline": lambda: Offline(model="mlp", epochs=2, batch=16),
    "deep slda": lambda: DeepSLDA(model="mlp"),
    "deep slda, fixed, on random features": lambda: DeepSLDA(
        model="mlp", init="random", covariance="fixed", classes=9
    ),
    "exstream": lambda: ExStream(model="mlp", per_class=3, batch=4, precision="bfloat16"),
    "exstream on random features": lambda: ExStream(model="mlp", init="random", per_class=2, classes=9),
    "remind": lambda: REMIND(model=two_parts, replay=6, capacity=20, centroids=16, precision="bfloat16"),
    "remind with extra parameters, on disk": lambda: REMIND(
        model=two_parts, replay=30, storage="disk", centroids=16, codebooks=2, extra_params=True, seed=2
    ),
}


@pytest.mark.parametrize("check", learner_checks(), ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_contract(name, check):
    check(CONFIGURATIONS[name])


class DrawsGlobally(CSSL):
    def _learn(self, new):
        if torch.rand(()) > 2 or random.random() > 0.5:
            self.step += 1
        super()._learn(new)


class LearnsWhenAsked(CSSL):
    def _logits(self, items):
        with torch.no_grad():
            self.engine.classifier.bias += 1e-3
        return super()._logits(items)


class KeepsInputs(CSSL):
    def learn_one(self, image, label, **rest):
        if isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[2] == 3:
            self.kept = [*getattr(self, "kept", []), image]
        return super().learn_one(image, label, **rest)

    def fingerprint(self):
        return super().fingerprint() + str([int(image.sum()) for image in getattr(self, "kept", [])])


class ForgetsMomentum(CSSL):
    def _restore_own(self, plain, arrays):
        super()._restore_own(plain, {name: a for name, a in arrays.items() if not name.startswith("momentum.")})


class ForgetsMomentumOfLaterTasks(CSSL):
    def _restore_own(self, plain, arrays):
        later = self._tasks.at > 0
        super()._restore_own(plain, {n: a for n, a in arrays.items() if not (later and n.startswith("momentum."))})


class OverBudget(CSSL):
    def _build(self, shape):
        super()._build(shape)
        self.buffer.evict = lambda rng: None


class ChangesBeforeChecking(CSSL):
    def learn_one(self, image, label, **rest):
        self.step += 1
        return super().learn_one(image, label, **rest)


class SnapshotsThatLearnOn(CSSL):
    def snapshot(self):
        twin = super().snapshot()
        twin.engine = self.engine
        return twin


@pytest.mark.parametrize(
    "broken",
    [
        *(DrawsGlobally, LearnsWhenAsked, KeepsInputs, ForgetsMomentum, OverBudget, ChangesBeforeChecking),
        *(SnapshotsThatLearnOn, ForgetsMomentumOfLaterTasks),
    ],
)
def test_checks_notice(broken):
    with pytest.raises(AssertionError):
        check_learner(lambda: broken(model="linear", replay=4, capacity=8))
