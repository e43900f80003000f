"""Layers frozen from the input on: their order, and how many fit into a share."""

import copy

import pytest
import torch
import torchvision
from torch import nn

from coldstream.models import MODELS, Body
from coldstream.models.freezing import first_layers, layers_in_order

# Of resnet10-16 for colour images, by hand: weights of each layer in the order of the forward pass.
STEM = [3 * 16 * 9, 2 * 16]
FIRST = [16 * 16 * 9, 32, 16 * 16 * 9, 32]
SECOND = [16 * 32 * 9, 64, 32 * 32 * 9, 64, 16 * 32, 64]
THIRD = [32 * 64 * 9, 128, 64 * 64 * 9, 128, 32 * 64, 128]
FOURTH = [64 * 64 * 9, 128, 64 * 64 * 9, 128]
SIZES = STEM + FIRST + SECOND + THIRD + FOURTH


def sizes(layers):
    return [sum(parameter.numel() for parameter in layer.parameters(recurse=False)) for layer in layers]


def test_the_order_of_a_resnet():
    body = Body.build("resnet10-16", (3, 16, 16), 0).module
    assert sizes(layers_in_order(body, (3, 16, 16))) == SIZES
    assert all(module.training for module in body.modules())
    assert not any(module._forward_pre_hooks for module in body.modules())


class Backwards(nn.Module):
    """Written down in another order than it works."""

    def __init__(self):
        super().__init__()
        self.last, self.twice, self.never = nn.Linear(5, 7), nn.Linear(5, 5), nn.Linear(9, 9)
        self.first = nn.Linear(4, 5)

    def forward(self, x):
        return self.last(self.twice(self.twice(self.first(x))))


def test_the_order_is_that_of_work():
    network = Backwards()
    assert layers_in_order(network, (4,)) == [network.first, network.twice, network.last]


@pytest.mark.parametrize("share", [0.001, 0.003, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1])
def test_as_many_layers_as_fit(share):
    body = Body.build("resnet10-16", (3, 16, 16), 0).module
    fits = max(n for n in range(len(SIZES) + 1) if sum(SIZES[:n]) <= share * sum(SIZES))
    assert sizes(first_layers(body, (3, 16, 16), share)) == SIZES[:fits]


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("linear", "resnet101", "wide_resnet50_2")])
def test_all_of_a_network_is_all_of_its_parameters(name):
    body = Body.build(name, (3, 32, 32), 0)
    assert first_layers(body.module, (3, 32, 32), 0) == []
    body.freeze(first_layers(body.module, (3, 32, 32), 1.0))
    assert not any(parameter.requires_grad for parameter in body.module.parameters())
    layers_in_order(body.module, (3, 32, 32))  # evaluates the network, and puts modes back as they were
    for network in (body.module, copy.deepcopy(body.module)):
        assert not any(m.training for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))


def test_parameters_that_two_layers_share_count_once():
    one, two, three = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    two.weight = one.weight
    network = nn.Sequential(one, two, three)  # 20 + 4 + 20
    assert first_layers(network, (4,), 24 / 44) == [one, two]


def test_a_vector_and_a_network_of_torchvision():
    body = torchvision.models.resnet18(num_classes=3)
    layers = first_layers(body, (3, 32, 32), 0.5)
    frozen = sum(sizes(layers))
    assert frozen <= 0.5 * sum(p.numel() for p in body.parameters())
    assert layers[0] is body.conv1
    assert body.layer4[1].conv2 not in layers
    assert torch.is_tensor(body(torch.zeros(2, 3, 32, 32)))


@pytest.mark.parametrize("share", [-0.1, 1.1, True, "half", None, float("nan")])
def test_what_is_no_share(share):
    with pytest.raises(ValueError, match="freeze is a number from 0 to 1"):
        first_layers(nn.Linear(2, 2), (2,), share)
