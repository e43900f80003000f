"""Networks against published parameter counts; weights from files and by name."""

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision
from torch import nn

from coldstream import CSSL
from coldstream.models import MODELS, Body, Head, load_weights

# torchvision publishes num_params in the metadata of its weights; the CIFAR ResNet18's are kuangliu/pytorch-cifar's.
PUBLISHED = [
    ("resnet18-cifar", 10, 11_173_962),
    ("resnet18-cifar", 100, 11_220_132),
    ("resnet8-16", 20, 78_692),
    *(
        (name, 1000, torchvision.models.get_model_weights(name).DEFAULT.meta["num_params"])
        for name in ("resnet18", "resnet101", "mobilenet_v2", "densenet121", "wide_resnet50_2")
    ),
]


def classifier(model, shape, seed, classes):
    """A whole network, with a head of its own."""
    body = Body.build(model, shape, seed)
    return nn.Sequential(body.module, Head(body.features, seed, classes))


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("name", "classes", "parameters"), PUBLISHED)
def test_parameter_counts(name, classes, parameters):
    with torch.device("cpu"):
        assert count(classifier(name, (3, 32, 32), 0, classes)) == parameters


def by_hand(channels, width, blocks, classes):
    total, inputs = channels * width * 9 + 2 * width, width
    for stage, number in enumerate(blocks):
        outputs = width * 2**stage
        for block in range(number):
            total += inputs * outputs * 9 + outputs * outputs * 9 + 4 * outputs
            if block == 0 and (stage or inputs != outputs):
                total += inputs * outputs + 2 * outputs
            inputs = outputs
    return total + (inputs + 1) * classes


@pytest.mark.parametrize(
    ("name", "width", "blocks"),
    [
        ("resnet10-16", 16, (1, 1, 2)),
        ("resnet14-16", 16, (2, 2, 2)),
        ("resnet20-16", 16, (3, 3, 3)),
        ("resnet10-32", 32, (1, 1, 2)),
        ("resnet18-20", 20, (2, 2, 2, 2)),
    ],
)
def test_slim_networks_by_hand(name, width, blocks):
    assert count(classifier(name, (3, 32, 32), 0, 20)) == by_hand(3, width, blocks, 20)
    assert count(classifier(name, (1, 32, 32), 0, 20)) == by_hand(1, width, blocks, 20)


def mobilenet_by_hand(channels, classes):
    """A quarter of MobileNetV2's channels, rounded to multiples of 8, and its 1,280 at the end."""
    widths = [8] + 2 * [8] + 3 * [8] + 4 * [16] + 3 * [24] + 3 * [40] + [80]
    total, inputs = channels * 8 * 9 + 2 * 8, 8
    for block, outputs in enumerate(widths):
        inner = inputs if block == 0 else 6 * inputs
        expand = 0 if block == 0 else inputs * inner + 2 * inner
        total += expand + 9 * inner + 2 * inner + inner * outputs + 2 * outputs
        inputs = outputs
    return total + inputs * 1280 + 2 * 1280 + (1280 + 1) * classes


def densenet_by_hand(channels, classes):
    """Three blocks of four layers, each of which adds 8 channels through 32; between them half the channels stay."""
    total, width = channels * 16 * 9 + 2 * 16, 16
    for block in range(3):
        if block:
            total += 2 * width + width * (width // 2)
            width //= 2
        for _ in range(4):
            total += 2 * width + width * 32 + 2 * 32 + 32 * 8 * 9
            width += 8
    return total + 2 * width + (width + 1) * classes


@pytest.mark.parametrize(
    ("name", "hand"), [("mobilenet-small", mobilenet_by_hand), ("densenet-small", densenet_by_hand)]
)
def test_other_small_networks_by_hand(name, hand):
    for channels in (1, 3):
        assert count(classifier(name, (channels, 32, 32), 0, 20)) == hand(channels, 20)


@pytest.mark.parametrize("name", ["resnet10-16", "resnet20-16", "resnet10-32", "mobilenet-small", "densenet-small"])
@pytest.mark.parametrize("side", [16, 32])
def test_small_networks_see_more_than_one_position_at_the_end(name, side):
    """A quarter of the side is left at the end, an eighth in the mobile one."""
    network = classifier(name, (3, side, side), 0, 4)
    last = [module for module in network[0].modules() if isinstance(module, nn.Conv2d)][-1]
    sides = []
    last.register_forward_hook(lambda module, inputs, output: sides.append(output.shape[-2:]))
    assert network(torch.zeros(2, 3, side, side)).shape == (2, 4)
    part = 8 if name == "mobilenet-small" else 4
    assert sides == [(side // part, side // part)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_network_takes_grey_and_colour_of_odd_sizes(name, channels):
    network = classifier(name, (channels, 33, 40), 0, 4).eval()
    assert network(torch.zeros(2, channels, 33, 40)).shape == (2, 4)


def test_strides_of_the_small_networks():
    body = Body.build("resnet18-cifar", (3, 32, 32), 0).module
    x = torch.zeros(1, 3, 32, 32)
    x = body.conv1(x)
    sides = [x.shape[-1]]
    for stage in body.stages:
        x = stage(x)
        sides.append(x.shape[-1])
    assert sides == [32, 32, 16, 8, 4]
    assert x.shape[1] == 512


def test_weights_depend_on_the_seed_alone():
    def flat(seed):
        return torch.cat([p.flatten() for p in classifier("resnet8-16", (3, 8, 8), seed, 3).parameters()])

    torch.manual_seed(1)
    first = flat(0)
    state = torch.get_rng_state()
    assert torch.equal(first, flat(0))
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(first, flat(1))


def test_head_rows_are_uniform_as_linear_layers_are():
    head = classifier("linear", (1, 4, 4), 0, 500)[1]
    values = torch.cat([head.weight.flatten(), head.bias]).detach().numpy()
    assert np.abs(values).max() <= 0.25
    assert np.abs(values).max() > 0.249
    assert values.std() == pytest.approx(0.25 / np.sqrt(3), rel=0.02)


def test_wrong_models():
    with pytest.raises(ValueError, match="did you mean 'resnet18'"):
        CSSL(model="resnet-18")
    with pytest.raises(ValueError, match="a name, an nn.Module or a function"):
        CSSL(model=3)
    image = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(ValueError, match=r"features \(N, d\); this one gave \(1, 3, 8, 8\)"):
        CSSL(model=nn.Identity()).learn_one(image, 0)
    with pytest.raises(ValueError, match="cannot take input of shape"):
        CSSL(model=nn.Linear(5, 5)).learn_one(image, 0)
    with pytest.raises(ValueError, match="densenet121 cannot take input of shape"):
        CSSL(model="densenet121").learn_one(image, 0)


def test_an_own_module_learns_and_loads_with_its_factory(tmp_path):
    def make():
        return nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    learner = CSSL(model=make, replay=4)
    rng = np.random.default_rng(0)
    for i in range(8):
        learner.learn_one(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8), i % 2)
    learner.save(tmp_path / "own")
    with pytest.raises(ValueError, match="load\\(path, model=factory\\)"):
        CSSL.load(tmp_path / "own")
    with pytest.raises(ValueError, match="do not fit this model"):
        CSSL.load(tmp_path / "own", model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 5)))
    assert CSSL.load(tmp_path / "own", model=make).fingerprint() == learner.fingerprint()


def body_state(seed):
    return Body.build("resnet8-16", (3, 8, 8), seed).module.state_dict()


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
def test_weights_from_a_file(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    state = body_state(7) | {"fc.weight": torch.zeros(10, 64), "fc.bias": torch.zeros(10)}
    if suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save({"state_dict": {f"module.{name}": value for name, value in state.items()}}, path)
    learner = CSSL(init=path if suffix == ".pt" else str(path), replay=0, rate=1e-9, size=8)
    learner.learn_one(np.zeros((8, 8, 3), np.uint8), 0)
    for name, value in learner.engine.body.named_parameters():
        torch.testing.assert_close(value.detach(), state[name], rtol=0, atol=1e-5)


def test_wrong_weights_are_refused(tmp_path):
    network = Body.build("resnet8-16", (3, 8, 8), 0).module
    before = {name: value.clone() for name, value in network.state_dict().items()}
    bad = {
        "lacks": {name: value for name, value in body_state(1).items() if name != "conv1.weight"},
        "unknown more": body_state(1) | {"more": torch.zeros(1)},
        "wrong shape": body_state(1) | {"bn1.weight": torch.zeros(3)},
    }
    for message, state in bad.items():
        torch.save(state, tmp_path / "w.pt")
        with pytest.raises(ValueError, match=message):
            load_weights(network, "resnet8-16", tmp_path / "w.pt")
    (tmp_path / "cut.safetensors").write_bytes(b"\x08\x00\x00")
    (tmp_path / "cut.pt").write_bytes(b"PK\x03\x04 not a file")
    for name in ("cut.safetensors", "cut.pt"):
        with pytest.raises(ValueError, match="cannot be read as plain tensors"):
            load_weights(network, "resnet8-16", tmp_path / name)
    with pytest.raises(ValueError, match="does not exist"):
        load_weights(network, "resnet8-16", "no/such/file.pt")
    with pytest.raises(ValueError, match="no published weights"):
        load_weights(network, "resnet8-16", "IMAGENET1K_V1")
    with pytest.raises(ValueError, match="IMAGENET1K_V1"):
        load_weights(network, "resnet18", "IMAGENET1K_V9")
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


class Explosive:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code of a file was run')",))


def test_a_weights_file_never_runs_code(tmp_path):
    torch.save({"conv1.weight": Explosive()}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="which is never run"):
        load_weights(nn.Identity(), "resnet18", tmp_path / "evil.pt")


def test_torchvision_weights_by_name(tmp_path, monkeypatch):
    """In the place and the layout in which torchvision keeps what it downloaded."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    file = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.url.rsplit("/", 1)[1]
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    torch.manual_seed(3)
    whole = torchvision.models.resnet18()
    torch.save(whole.state_dict(), tmp_path / "hub" / "checkpoints" / file)
    learner = CSSL(model="resnet18", init="IMAGENET1K_V1", normalize="imagenet", replay=0, rate=1e-9, size=32)
    learner.learn_one(np.zeros((32, 32, 3), np.uint8), "a")
    torch.testing.assert_close(learner.engine.body.conv1.weight, whole.conv1.weight, rtol=0, atol=1e-4)
