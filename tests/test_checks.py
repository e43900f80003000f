"""Every learner, in several configurations, against every check; and the checks against broken learners."""

import random
from collections import OrderedDict
from typing import Annotated

import numpy as np
import pytest
import torch
from torch import nn

from coldstream import CSSL, ColdStart, checks
from coldstream.checks import check_learner, learner_checks
from coldstream.learners import (
    ER,
    ERACE,
    REMIND,
    DeepSLDA,
    DERpp,
    EndToEnd,
    ExStream,
    GDumb,
    ICaRL,
    LinearProbe,
    Offline,
)
from coldstream.learners.settings import one_of


def own_network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def two_parts():
    frozen = nn.Sequential(nn.Conv2d(3, 4, 3, 3), nn.BatchNorm2d(4), nn.ReLU())
    plastic = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(OrderedDict(frozen=frozen, plastic=plastic))


def with_settings(kind, **settings):
    """Return a factory, which takes other settings too."""
    return lambda **changes: kind(**{**settings, **changes})


FULL = "crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"
CONFIGURATIONS = {
    "default": with_settings(ColdStart, replay=6),
    "full policy, packed, evicting": with_settings(
        CSSL, replay=6, augment=FULL, codec="resize(0.66)|quantize(6)", capacity="2KB", seed=3
    ),
    "jpeg on disk, class balanced": with_settings(
        ColdStart, model="linear", replay=6, codec="jpeg(80)", storage="disk", capacity="8KB", sample="class-balanced"
    ),
    "consolidating": with_settings(
        ColdStart, model="linear", replay=6, capacity=9, evict="consolidate-mixup(0.4, limit=2)"
    ),
    "reservoir, fixed classes, constant rate": with_settings(
        ColdStart, model="linear", replay=6, capacity=9, evict="reservoir", classes=8, rate=0.01
    ),
    "own network with dropout": with_settings(CSSL, model=own_network, replay=6, augment="crop|randaugment(1, 9)"),
    "disk, uniform eviction, bfloat16": with_settings(
        ColdStart, model="mlp", replay=6, storage="disk", capacity="4KB", evict="uniform", precision="bfloat16"
    ),
    "base-initialised": with_settings(CSSL, model="mlp", init="base", replay=6, augment="none"),
    "er": with_settings(ER, model="linear", replay=6, capacity=9),
    "er-ace": with_settings(ERACE, model="mlp", replay=6, capacity=9),
    "der++": with_settings(DERpp, model="mlp", replay=6, capacity=9, rate=0.01),
    "der, on disk": with_settings(DERpp, model="linear", replay=4, storage="disk", beta=0.0),
    "linear probe": with_settings(LinearProbe, model="mlp", replay=6, capacity=12, precision="float64"),
    "linear probe on random features": with_settings(LinearProbe, model="resnet8-16", init="random", replay=6),
    "icarl": with_settings(ICaRL, model="mlp", exemplars=10, epochs=2, batch=8, rate=0.5),
    "icarl, all kept, own network": with_settings(
        ICaRL, model=own_network, exemplars=None, epochs=1, batch=16, rate=0.5
    ),
    "end to end": with_settings(
        EndToEnd, model="mlp", exemplars=10, epochs=2, fine_epochs=1, batch=8, precision="float64"
    ),
    "end to end, all kept, fixed classes": with_settings(
        EndToEnd, model="mlp", exemplars=None, epochs=1, fine_epochs=1, batch=16, classes=8, storage="disk"
    ),
    "gdumb": with_settings(GDumb, model="mlp", capacity=9, epochs=2),
    "gdumb in bytes, mixing": with_settings(
        GDumb, model="linear", capacity="5KB", epochs=1, augment="crop|cutmix(1.0)"
    ),
    "offline": with_settings(Offline, model="mlp", epochs=2, batch=16),
    "deep slda": with_settings(DeepSLDA, model="mlp"),
    "deep slda, fixed, on random features": with_settings(
        DeepSLDA, model="mlp", init="random", covariance="fixed", classes=9
    ),
    "exstream": with_settings(ExStream, model="mlp", per_class=3, batch=4, precision="bfloat16"),
    "exstream on random features": with_settings(ExStream, model="mlp", init="random", per_class=2, classes=9),
    "remind": with_settings(REMIND, model=two_parts, replay=6, capacity=20, centroids=16, precision="bfloat16"),
    "remind with extra parameters, on disk": with_settings(
        REMIND, model=two_parts, replay=30, storage="disk", centroids=16, codebooks=2, extra_params=True, seed=2
    ),
}


@pytest.mark.parametrize("check", learner_checks(), ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_contract(name, check):
    check(CONFIGURATIONS[name])


class DrawsGlobally(ColdStart):
    def _learn(self, task, new):
        if torch.rand(()) > 2 or random.random() > 0.5:
            self.step += 1
        super()._learn(task, new)


class LearnsWhenAsked(ColdStart):
    def _logits(self, task, items):
        with torch.no_grad():
            task.head.bias += 1e-3
        return super()._logits(task, items)


class KeepsInputs(ColdStart):
    def learn_one(self, image, label, **rest):
        if isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[2] == 3:
            self.kept = [*getattr(self, "kept", []), image]
        return super().learn_one(image, label, **rest)

    def fingerprint(self):
        return super().fingerprint() + str([int(image.sum()) for image in getattr(self, "kept", [])])


def without_momentum(arrays):
    return {name: array for name, array in arrays.items() if not name.startswith("momentum.")}


class ForgetsMomentum(ColdStart):
    def _restore_task(self, task, plain, arrays):
        super()._restore_task(task, plain, without_momentum(arrays))


class ForgetsMomentumOfTheBody(ColdStart):
    def _restore(self, plain, arrays):
        super()._restore(plain, without_momentum(arrays))


class ForgetsMomentumOfLaterTasks(ColdStart):
    def _restore_task(self, task, plain, arrays):
        super()._restore_task(task, plain, without_momentum(arrays) if task.number else arrays)


class SavesNoConfidence(ColdStart):
    def _restore_task(self, task, plain, arrays):
        CSSL._restore_task(self, task, plain, arrays)


class GivesItsStateItself(ColdStart):
    def _state(self):
        plain, arrays = super()._state()
        return plain, arrays | {f"model.body.{name}": v.numpy() for name, v in self.engine.body.state_dict().items()}


class OverBudget(ColdStart):
    def _new_task(self, engine, shape, **basics):
        task = super()._new_task(engine, shape, **basics)
        task.buffer.evict = lambda rng: None
        return task


class ChangesBeforeChecking(ColdStart):
    def learn_one(self, image, label, **rest):
        self.step += 1
        return super().learn_one(image, label, **rest)


class SnapshotsThatLearnOn(ColdStart):
    def snapshot(self):
        twin = super().snapshot()
        twin._engine, twin.tasks = self._engine, self.tasks
        return twin


class LosesASetting(ColdStart):
    class Settings(ColdStart.Settings):
        boost: float = 1.0

        def to_json(self):
            return {name: value for name, value in super().to_json().items() if name != "boost"}


class FollowsALostSetting(ColdStart):
    """Says after loading that the setting is as it was, and does not follow it."""

    class Settings(ColdStart.Settings):
        boost: float = 1.0

    def _set_up(self):
        super()._set_up()
        self.boost = self.settings.boost

    def loss(self, logits, batch, targets):
        return super().loss(logits, batch, targets) * self.boost

    def _restore(self, plain, arrays):
        super()._restore(plain, arrays)
        self.boost = 1.0


BROKEN = {
    DrawsGlobally: "check_leaves_global_generators",
    LearnsWhenAsked: "check_evaluation_changes_nothing",
    KeepsInputs: "check_inputs_are_left_alone",
    ForgetsMomentum: "check_resumes_bit_for_bit",
    ForgetsMomentumOfTheBody: "check_resumes_bit_for_bit",
    ForgetsMomentumOfLaterTasks: "check_tasks_resume_bit_for_bit",
    SavesNoConfidence: "check_resumes_bit_for_bit",
    GivesItsStateItself: "check_saves_the_moment",
    OverBudget: "check_within_budget",
    ChangesBeforeChecking: "check_survives_bad_input",
    SnapshotsThatLearnOn: "check_snapshot_answers_alike",
    LosesASetting: "check_settings_are_kept",
    FollowsALostSetting: "check_settings_are_kept",
}
"""Broken learners, and the check that is there to notice each."""


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_checks_notice(broken):
    factory = with_settings(broken, model="mlp", replay=4, capacity=8)
    with pytest.raises(AssertionError, match="check_"):
        check_learner(factory)
    with pytest.raises(AssertionError):
        getattr(checks, BROKEN[broken])(factory)


def test_a_lost_setting_is_named():
    factory = with_settings(LosesASetting, model="linear", replay=4, capacity=8)
    with pytest.raises(AssertionError, match=r"setting 'boost' was 0\.75 and is 1\.0 after loading"):
        checks.check_settings_are_kept(factory)


class HasManyKindsOfSettings(ColdStart):
    class Settings(ColdStart.Settings):
        way: Annotated[str, one_of(("near", "far"), "way")] = "near"
        limit: int | None = None
        stages: tuple[int, ...] = (1, 2)
        cuts: tuple[float, ...] = ()
        share: float = 0.0
        text: str = "free"


def test_every_kind_of_setting_is_changed_but_free_text():
    factory = with_settings(HasManyKindsOfSettings, model="linear", replay=4, capacity=8)
    changed = checks.settings.changed_settings(factory)
    wanted = {"way": "far", "limit": 8, "stages": (1,), "cuts": (1.0,), "share": 0.5, "sample": "class-balanced"}
    assert {name: changed[name] for name in wanted} == wanted
    assert "text" not in changed
    checks.check_settings_are_kept(factory)


def test_a_factory_without_arguments_is_checked_as_it_is():
    checks.check_settings_are_kept(lambda: LosesASetting(model="linear", replay=4, capacity=8))
