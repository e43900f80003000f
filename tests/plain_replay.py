"""Experience replay with a linear model in plain torch, float64: the oracle of methods that change its loss."""

import math

import numpy as np
import torch

from coldstream.randomness import generator

SIDE = 4
PIXELS = SIDE * SIDE


def stream(count, classes, seed, order="mixed"):
    """Return grey images of noise and labels from 0 in the order of first appearance."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, SIDE, SIDE, 1), dtype=np.uint8)
    drawn = np.arange(count) * classes // count if order == "by class" else rng.integers(classes, size=count)
    first = {label: place for place, label in enumerate(dict.fromkeys(drawn.tolist()))}
    return images, [first[label] for label in drawn.tolist()]


class PlainReplay:
    """Lists of images, labels and logits; a reservoir; SGD written out.

    `loss(logits, labels, replayed)` is given the logits of the whole batch, the labels of the new examples, and for
    each draw from the buffer a list of (label, logits stored with the example). It may return several losses;
    `combine` makes one direction of their gradients.
    """

    def __init__(self, loss, *, seed, replay, capacity, draws=1, momentum=0.9, decay=1e-2, combine=sum):
        self.loss, self.seed, self.replay, self.capacity, self.draws = loss, seed, replay, capacity, draws
        self.momentum, self.decay, self.combine = momentum, decay, combine
        self.weight, self.bias = torch.zeros((0, PIXELS), dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
        self.velocity = torch.zeros((0, PIXELS + 1), dtype=torch.float64)
        self.stored, self.seen, self.step, self.offered = [], {}, 0, 0

    def learn(self, images, labels):
        """Make one update with new examples, then store them."""
        for label in labels:
            if label == len(self.bias):
                bound = 1 / math.sqrt(PIXELS)
                row = torch.from_numpy(generator(self.seed, label, "head").uniform(-bound, bound, PIXELS + 1))
                self.weight = torch.cat([self.weight, row[None, :PIXELS]])
                self.bias = torch.cat([self.bias, row[PIXELS:]])
                self.velocity = torch.cat([self.velocity, torch.zeros((1, PIXELS + 1), dtype=torch.float64)])
        rate = sum(0.1 / math.sqrt(1 + self.seen.get(label, 0) / 100) for label in labels) / len(labels)
        drawn = []
        for number in range(self.draws):
            slots = range(len(self.stored))
            if len(self.stored) > self.replay:
                draw = generator(self.seed, self.step, "sample" if number == 0 else f"sample {number + 1}")
                slots = draw.choice(len(self.stored), self.replay, replace=False)
            drawn.append([self.stored[slot] for slot in slots])
        batch = [*images, *(image for part in drawn for image, _, _ in part)]
        x = (torch.tensor(np.array(batch), dtype=torch.float64).reshape(len(batch), PIXELS) / 255 - 0.5) / 0.25
        weight, bias = self.weight.clone().requires_grad_(), self.bias.clone().requires_grad_()
        logits = x @ weight.T + bias
        values = self.loss(logits, labels, [[(label, kept) for _, label, kept in part] for part in drawn])
        slopes = []
        for value in values if isinstance(values, list) else [values]:
            of_weight, of_bias = torch.autograd.grad(value, (weight, bias), retain_graph=True)
            slopes.append(torch.cat([of_weight, of_bias[:, None]], dim=1))
        slope = self.combine(slopes)
        both = torch.cat([self.weight, self.bias[:, None]], dim=1)
        self.velocity = self.momentum * self.velocity + slope + self.decay * both
        both = both - rate * self.velocity
        self.weight, self.bias = both[:, :PIXELS], both[:, PIXELS]
        for image, label, row in zip(images, labels, logits.detach(), strict=False):
            self.seen[label] = self.seen.get(label, 0) + 1
            self.stored.append((image, label, row.float().double()))
            self.offered += 1
            if len(self.stored) > self.capacity:
                slot = int(generator(self.seed, self.step, "evict").integers(self.offered))
                newest = self.stored.pop()
                if slot < self.capacity:
                    self.stored[slot] = newest
            self.step += 1


def assert_same(learner, oracle, atol):
    """Compare head, stored images and their labels."""
    (task,) = learner.tasks.values()
    slots = np.arange(len(task.buffer))
    np.testing.assert_allclose(task.head.weight.detach().numpy(), oracle.weight.numpy(), rtol=0, atol=atol)
    np.testing.assert_allclose(task.head.bias.detach().numpy(), oracle.bias.numpy(), rtol=0, atol=atol)
    np.testing.assert_array_equal(task.buffer.items(slots), np.array([image for image, _, _ in oracle.stored]))
    assert task.buffer.index.labels.view.tolist() == [label for _, label, _ in oracle.stored]
    assert learner.step == oracle.step


def cross_entropy(logits, label, columns=None):
    """Return -log softmax of one example's logits at `label`, over some columns."""
    columns = range(len(logits)) if columns is None else columns
    return torch.log(sum(torch.exp(logits[column]) for column in columns)) - logits[label]
