"""Networks in two parts: F(G(x)) is the network, and the counts of both are the published ones."""

from collections import OrderedDict

import pytest
import torch
import torchvision
from torch import nn

from coldstream.models import MODELS, Body, Head, check_split, split, with_extra
from coldstream.models.split import UNSPLIT

# For images of 64 pixels: the shape of a map, and which layers are plastic.
EXPECTED = {
    "resnet10-16": ((64, 16, 16), {"stages.2.1"}),
    "resnet14-16": ((64, 16, 16), {"stages.2.1"}),
    "resnet20-16": ((64, 16, 16), {"stages.2.1", "stages.2.2"}),
    "resnet10-32": ((128, 16, 16), {"stages.2.1"}),
    "mobilenet-small": ((40, 8, 8), {"features.17", "features.18"}),
    "densenet-small": ((28, 16, 16), {"features.denseblock3", "features.norm5"}),
    "resnet18-20": ((160, 8, 8), {"stages.3.1"}),
    "resnet18-cifar": ((512, 8, 8), {"stages.3.1"}),
    "resnet18": ((512, 2, 2), {"layer4.1"}),
    "resnet101": ((2048, 2, 2), {"layer4.1", "layer4.2"}),
    "mobilenet_v2": ((160, 2, 2), {"features.17", "features.18"}),
    "densenet121": ((512, 2, 2), {"features.denseblock4", "features.norm5"}),
    "wide_resnet50_2": ((2048, 2, 2), {"layer4.1", "layer4.2"}),
}


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", [name for name in MODELS if name not in UNSPLIT])
def test_the_parts_are_the_network_bit_for_bit(name):
    check_split(name)
    body = Body.build(name, (3, 64, 64), 0).module
    parts = split(body, (3, 64, 64))
    assert all(module.training for module in body.modules())
    plastic = {id(parameter) for parameter in parts.plastic.parameters()}
    names = [name for name, parameter in body.named_parameters() if id(parameter) in plastic]
    first = {".".join(name.split(".")[: 3 if name.startswith("stages") else 2]) for name in names}
    assert (parts.shape, first) == EXPECTED[name]
    assert count(parts.frozen) + count(parts.plastic) == count(body)
    x = torch.randn(2, 3, 33, 40, generator=torch.Generator().manual_seed(0))
    body.eval()
    with torch.no_grad():
        assert torch.equal(parts.plastic(parts.frozen(x)), body(x))


@pytest.mark.parametrize(
    ("name", "side", "classes", "frozen", "width"),
    [("resnet18", 64, 1000, 0.552, 700), ("resnet18-cifar", 32, 100, 0.575, 699)],
)
def test_the_papers_networks(name, side, classes, frozen, width):
    """REMIND's frozen share by parameter count, and what it takes to have as many trainable ones as CSSL."""
    body = Body.build(name, (3, side, side), 0)
    network = nn.Sequential(body.module, Head(body.features, 0, classes))
    parts = split(body.module, (3, side, side))
    assert round(count(parts.frozen) / count(network), 3) == frozen
    more = with_extra(parts)
    assert more.plastic[0].conv1.weight.shape == (width, 512, 3, 3)
    trainable = count(more.plastic) + classes * 513
    assert trainable == pytest.approx(count(network), rel=0.0004)


def test_extra_layers_begin_as_the_identity():
    parts = split(Body.build("resnet14-16", (3, 16, 16), 0).module, (3, 16, 16))
    more = with_extra(parts)
    maps = torch.randn(2, 64, 4, 4)
    assert torch.equal(more.plastic[0](maps), maps)
    assert count(more.plastic) == pytest.approx(count(parts.frozen) + count(parts.plastic), abs=18 * 64 + 2)


def test_what_cannot_be_split_is_refused_with_a_reason():
    for name in UNSPLIT:
        with pytest.raises(ValueError, match="resnet14-16") as early:
            check_split(name)
        with pytest.raises(ValueError, match="resnet14-16") as late:
            split(Body.build(name, (3, 16, 16), 0).module, (3, 16, 16))
        assert str(early.value).split(":")[0].split("cannot")[1] == str(late.value).split(":")[0].split("cannot")[1]
    with pytest.raises(ValueError, match="attributes `frozen`"):
        split(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), (3, 8, 8))
    with pytest.raises(ValueError, match="did you mean 'resnet18'"):
        check_split("resnet-18")


def two_parts(**parts):
    return nn.Sequential(OrderedDict(parts))


def test_an_own_network_says_its_parts():
    frozen = nn.Conv2d(3, 4, 3)
    body = two_parts(frozen=frozen, plastic=nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    assert split(body, (3, 8, 9)).frozen is frozen
    assert split(body, (3, 8, 9)).shape == (4, 6, 7)
    with pytest.raises(ValueError, match=r"maps \(N, c, h, w\); this one gave \(1, 144\)"):
        split(two_parts(frozen=nn.Sequential(frozen, nn.Flatten()), plastic=nn.Identity()), (3, 8, 8))
    nn.init.constant_(frozen.bias, -1.0)  # so that the ReLU changes what a blank image gives
    odd = two_parts(frozen=frozen, between=nn.ReLU(), plastic=nn.Flatten())
    with pytest.raises(ValueError, match="must be what the network makes of it"):
        split(odd, (3, 8, 8))


def test_torchvisions_other_resnets():
    network = torchvision.models.resnet34(num_classes=5)
    parts = split(network, (3, 32, 32))
    assert count(parts.plastic) == count(network.layer4[1:]) + count(network.fc)


SPLIT = [
    *("resnet10-16", "resnet14-16", "resnet20-16", "resnet10-32", "resnet18-20", "resnet18-cifar", "resnet18"),
    *("mobilenet_v2", "mobilenet-small", "densenet-small"),
]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", SPLIT)
def test_extra_layers_make_the_trainable_parameters_as_many_as_the_networks(name, channels):
    body = Body.build(name, (channels, 32, 32), 0).module
    parts = split(body, (channels, 32, 32))
    assert count(with_extra(parts).plastic) == pytest.approx(count(body), rel=0.001)
