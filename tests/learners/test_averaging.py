"""The average of weights against sums made by hand, and what predictions make of it."""

import copy

import numpy as np
import pytest
import torch

from coldstream import CSSL, ColdStart
from coldstream.learners.training.averaging import Average
from coldstream.learners.training.engine import TrainedHead
from coldstream.models import Body

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)


def settings(**changes):
    """Return the settings of the paper's algorithm with a light policy, and with the average for predictions."""
    paper = {"sample": "uniform", "weight_decay": 1e-5, "strong_share": 1.0, "passes": 1}
    off = dict.fromkeys(("full_on_duplicates", "calibrate", "unseen", "warm_up"), False)
    return {"size": 8, "replay": 6, "channels": 3, "augment": "crop|flip", "average": True, **paper, **off, **changes}


def values(average):
    return average.body.state_dict()


def walk(network, average, steps, seed=0):
    """Give the network random weights, let the average follow, and return all weights that there were."""
    generator = torch.Generator().manual_seed(seed)
    places = []
    for _ in range(steps):
        for parameter in network.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)
        average.follow({}, {})
        places.append({name: value.clone() for name, value in network.named_parameters()})
    return places


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_the_first_few_count_the_same(steps):
    network = torch.nn.Linear(3, 2)
    average = Average(network)
    places = walk(network, average, steps)
    for name in ("weight", "bias"):
        torch.testing.assert_close(values(average)[name], sum(place[name] for place in places) / steps)


def test_the_share_of_every_update():
    """What is left of each is 1/n of it, less the shares of those after it; n grows to 300 in 2,368 updates."""
    network = torch.nn.Linear(1, 1, bias=False)
    average = Average(network)
    shares = []
    for k in range(1, 2600):
        n = min(k, 4 + k / 8, 300)
        shares = [share * (1 - 1 / n) for share in shares] + [1 / n]
    for k in range(1, 2600):
        network.weight.data.fill_(float(k == 2400))
        average.follow({}, {})
    assert sum(shares) == pytest.approx(1)
    assert values(average)["weight"].item() == pytest.approx(shares[2399], rel=1e-3)
    assert shares[-1] == 1 / 300


def test_after_a_new_class_it_follows_closely():
    network = torch.nn.Linear(1, 1, bias=False)
    average = Average(network)
    for _ in range(400):
        network.weight.data.fill_(0.0)
        average.follow({}, {})
    network.weight.data.fill_(1.0)
    average.follow({}, {})
    assert values(average)["weight"].item() == pytest.approx(1 / (4 + 401 / 8), rel=1e-4)
    average.shorten({}, 0, 4)
    assert values(average)["weight"].item() < 0.02  # until there is something newer
    for _ in range(20):
        average.follow({}, {})
    assert values(average)["weight"].item() > 0.9


@pytest.mark.parametrize(("classes", "since"), [(1, 0), (4, 0), (5, 80), (8, 200), (400, 396)])
def test_a_new_class_takes_its_part_of_the_memory(classes, since):
    average = Average(torch.nn.Linear(1, 1))
    for _ in range(400):
        average.follow({}, {})
    average.shorten({}, 0, classes)
    assert average.since == pytest.approx(since)


def test_the_row_of_a_new_class_follows_closely_and_the_others_do_not():
    average, rows, averaged = Average(torch.nn.Identity()), dict(torch.nn.Linear(1, 3).named_parameters()), {}
    average.shorten(averaged, 0, 1)
    average.shorten(averaged, 1, 8)
    for _ in range(400):
        for parameter in rows.values():
            parameter.data.fill_(0.0)
        average.follow(rows, averaged)
    average.shorten(averaged, 2, 8)
    old = new = 0.0
    for k in range(1, 100):
        for parameter in rows.values():
            parameter.data.fill_(float(k))
        average.follow(rows, averaged)
        old += (k - old) / (4 + (200 + k) / 8)
        new += (k - new) / (4 + k / 8)
        for name in ("weight", "bias"):
            np.testing.assert_allclose(averaged[name].flatten(), [old, old, new], rtol=1e-4)
    assert old < 0.8 * new


def test_new_rows_begin_as_they_are():
    average, head = Average(torch.nn.Identity()), TrainedHead(5, seed=0, rows=2)
    for _ in range(3):
        average.follow(dict(head.named_parameters()), head.average)
    head.grow(5)
    head.weight.data += 1
    average.follow(dict(head.named_parameters()), head.average)
    assert head.average["weight"].shape == head.weight.shape
    assert torch.equal(head.average["weight"][2:], head.weight.data[2:])
    assert not torch.equal(head.average["weight"][:2], head.weight.data[:2])


def test_rows_without_an_average_answer_as_they_are():
    average, head = Average(torch.nn.Identity()), TrainedHead(5, seed=0, rows=2)
    for _ in range(3):
        head.weight.data += 1
        average.follow(dict(head.named_parameters()), head.average)
    head.grow(3)
    features = torch.randn(4, 5)
    averaged, plain = head.averaged(features), head(features)
    assert torch.equal(averaged[:, 2], plain[:, 2])
    torch.testing.assert_close(averaged[:, :2], plain[:, :2] - features.sum(dim=1, keepdim=True))


def test_predictions_are_those_of_a_network_with_averaged_weights_and_statistics():
    learner = ColdStart(**settings())
    kept = []
    for i, image in enumerate(IMAGES[:12]):
        learner.learn_one(image, i % 2)
        state = {
            **learner.engine.body.state_dict(prefix="body."),
            **learner.tasks[None].head.state_dict(prefix="head."),
        }
        kept.append({name: value.double() for name, value in state.items() if value.is_floating_point()})
    averaged = kept[0]
    for number, weights in enumerate(kept[1:], 2):  # the second example opened the last class
        n = min(number, 4 + (number - 1) / 8)
        for name, value in weights.items():
            before = torch.cat([averaged[name], value[len(averaged[name]) :]]) if value.dim() else averaged[name]
            averaged[name] = before + (value - before) / n
    twin = torch.nn.Sequential()
    twin.add_module("body", copy.deepcopy(learner.engine.body))
    twin.add_module("head", copy.deepcopy(learner.tasks[None].head))
    twin.double().load_state_dict(averaged, strict=False)
    twin.eval()
    with torch.inference_mode():
        wanted = torch.softmax(twin(learner.engine.normalise(learner.engine.to_device(IMAGES[20:])).double()), 1)
    np.testing.assert_allclose(learner.predict_proba_many(IMAGES[20:]), wanted.numpy(), atol=1e-5)


def test_the_network_learns_as_without():
    learners = [ColdStart(**settings(average=average)) for average in (True, False)]
    for learner in learners:
        for i, image in enumerate(IMAGES[:10]):
            learner.learn_one(image, i % 3)
    for part in (lambda learner: learner.engine.body, lambda learner: learner.tasks[None].head):
        with_average, without = (part(learner).state_dict() for learner in learners)
        assert all(torch.equal(with_average[name], without[name]) for name in without)
    assert not np.array_equal(*(learner.predict_proba_many(IMAGES[20:]) for learner in learners))


def test_each_task_has_the_average_of_its_own_head():
    learner = ColdStart(**settings())
    for i, image in enumerate(IMAGES[:12]):
        learner.learn_one(image, i % 2, task=f"task {i % 3}")
    before = {task: learner.predict_proba_many(IMAGES[20:], task=task) for task in learner.tasks_}
    for task in [*learner.tasks_, *reversed(learner.tasks_)]:
        np.testing.assert_array_equal(learner.predict_proba_many(IMAGES[20:], task=task), before[task])


def test_a_new_task_is_one_class_more_of_all():
    learner = ColdStart(**settings())
    for i, image in enumerate(IMAGES[:30]):
        learner.learn_one(image, i % 10, task="first")
    before = learner.engine.average.since
    learner.learn_one(IMAGES[30], 0, task="second")
    assert learner.engine.average.since == pytest.approx(before * (1 - 4 / 11) + 2)  # an update for each task


def test_a_label_that_is_the_same_changes_nothing():
    learner = ColdStart(**settings())
    ids = [learner.learn_one(image, i) for i, image in enumerate(IMAGES[:6])]
    before = learner.fingerprint()
    assert learner.relabel(ids[2], 2)
    assert learner.fingerprint() == before


@pytest.mark.parametrize("tasks", [1, 2])
def test_ages_of_rows_are_kept(tmp_path, tasks):
    learner = ColdStart(**settings(classes=8))
    for i, image in enumerate(IMAGES[:24]):
        learner.learn_one(image, i // 3 if tasks == 1 else i // 6, task=None if tasks == 1 else f"task {i % tasks}")
    learner.save(tmp_path / "kept")
    other = ColdStart.load(tmp_path / "kept")
    assert other.tasks.keys() == learner.tasks.keys()
    for name, task in learner.tasks.items():
        assert torch.equal(other.tasks[name].head.average["born"], task.head.average["born"])
    assert other.engine.average.since == learner.engine.average.since
    for one in (learner, other):
        for i in range(24, 40):
            one.learn_one(IMAGES[i], i % 4, task=None if tasks == 1 else f"task {i % tasks}")
    assert learner.fingerprint() == other.fingerprint()
    for task in [None] if tasks == 1 else learner.tasks_:
        np.testing.assert_array_equal(*(one.predict_proba_many(IMAGES, task=task) for one in (learner, other)))


# Rows that have not learned yet, and so have no average.


def taught(**settings):
    learner = ColdStart(**{"size": 8, "replay": 4, "channels": 3, "seed": 1, **settings})
    for i in range(8):
        learner.learn_one(IMAGES[i], i % 2)
    return learner


def test_a_class_that_a_relabelled_example_opens(tmp_path):
    learner = taught()
    learner.relabel(3, "new")
    assert learner.engine.average.since == 0  # the average follows closely from now on
    probabilities = learner.predict_proba_many(IMAGES[:5])
    assert probabilities.shape == (5, 3)
    learner.save(tmp_path / "kept")
    twins = [ColdStart.load(tmp_path / "kept"), learner]
    assert twins[0].fingerprint() == twins[1].fingerprint()
    for one in (*twins, learner.snapshot()):
        np.testing.assert_array_equal(one.predict_proba_many(IMAGES[:5]), probabilities)
    for one in twins:
        one.learn_one(IMAGES[9], "new")
        one.learn_one(IMAGES[10], "newer")
    assert twins[0].fingerprint() == twins[1].fingerprint()


def test_several_of_a_new_class_in_one_update():
    learner = taught()
    learner.learn_many(IMAGES[8:12], ["new", 0, "new", 1], per_update=4)
    assert learner.classes_ == [0, 1, "new"]
    assert learner.tasks[None].classes.counts == [5, 5, 2]
    assert np.isfinite(learner.predict_proba_many(IMAGES[:5])).all()


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = self.again = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, inputs):
        return self.again(self.first(inputs).relu()).mean(dim=(2, 3))


def test_weights_that_are_tied():
    learner = taught(model=lambda: Tied())
    assert learner.predict_proba_many(IMAGES[:5]).shape == (5, 2)


class Odd(torch.nn.Module):
    """With a weight that is used twice, a statistic that is not kept, one that there is not, and a counter."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)
        self.again = self.first
        self.register_buffer("passing", torch.zeros(2), persistent=False)
        self.register_buffer("none", None)


@pytest.mark.parametrize("network", [Odd(), Body.build("resnet8-16", (3, 8, 8), 0).module])
def test_all_that_a_state_dict_has_is_averaged(network):
    average = Average(network)
    names = {name for name, value in network.state_dict().items() if value.is_floating_point()}
    places = []
    for _ in range(3):
        for name, value in network.state_dict().items():
            if name in names and not name.startswith("again"):  # which is the first one
                value += 1
        average.follow({}, {})
        places.append({name: network.state_dict()[name].clone() for name in names})
    for name in names:
        torch.testing.assert_close(values(average)[name], sum(place[name] for place in places) / 3)
    assert average.state().keys() == {name for name in names if not name.startswith("again")}


class Counting(torch.nn.Module):
    """Answers depend on a counter, and on a number that no checkpoint holds; neither has an average."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("passing", torch.zeros(()), persistent=False)

    def forward(self, inputs):
        if self.training:
            self.count += 1
            self.passing += 1
        return self.conv(inputs).mean(dim=(2, 3)) * self.count + self.passing


def test_what_has_no_average_is_as_it_is():
    learner = taught(model=lambda: Counting())
    assert learner.engine.body.count > 8
    assert learner.engine.average.body.count == learner.engine.body.count
    assert learner.engine.average.body.passing == learner.engine.body.passing


class Replacing(torch.nn.Module):
    """A forward pass that puts other tensors in the place of its buffers, also in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3)
        self.register_buffer("last", torch.zeros(3))
        self.register_buffer("noise", None, persistent=False)

    def forward(self, inputs):
        features = self.conv(inputs).mean(dim=(2, 3))
        if self.noise is None or len(self.noise) != len(inputs):
            self.noise = torch.ones(len(inputs), 1)
        self.last = 0.9 * self.last + 0.1 * features.detach().mean(dim=0)
        return features * self.noise


@pytest.mark.parametrize("kind", [CSSL, ColdStart])
def test_an_answer_does_not_change_buffers_that_a_forward_pass_replaces(kind):
    learner = kind(model=lambda: Replacing(), size=8, replay=8, channels=3)
    for number, image in enumerate(IMAGES[:12]):
        learner.learn_one(image, number % 2)
    before = learner.fingerprint()
    guess = learner.predict_proba_many(IMAGES[:5])
    learner.predict_many(IMAGES[:9])
    assert learner.fingerprint() == before
    assert (learner.predict_proba_many(IMAGES[:5]) == guess).all()
    for number, image in enumerate(IMAGES[:4]):
        learner.learn_one(image, number % 2)
    assert learner.fingerprint() != before
