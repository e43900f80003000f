"""What the paper's experiments have in common: the streams of CIFAR-100 at each scale, and the methods."""

from __future__ import annotations

from typing import Any

from coldstream.learners.recipes import paper_recipe
from coldstream.paper.catalog import Setting, Settings

CROPS = "crop|flip"
MIX = "mixup(0.1)/cutmix(0.8)"
FULL = f"{CROPS}|autoaugment(cifar10)|{MIX}"
CODEC = "resize(0.66)|quantize(6)"
PRETRAINING = (
    *("sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor", "skyscraper", "trout", "tulip"),
    *("turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm", "sunflower", "streetcar", "squirrel"),
)
"""The classes that lab scale pre-trains on: none of them is streamed."""

IMAGENET = {"model": "resnet18", "size": 224, "normalize": "imagenet", "init": "IMAGENET1K_V1"}
"""A network with ImageNet's weights, which are for torchvision's ResNet18 and images of ImageNet's size."""

_NETWORK = ("model", "size", "channels", "classes", "normalize")
_METHOD = ("replay", "codec", "capacity", "augment", "rate", "weight_decay", "momentum", "evict", "sample")
_SEEDS = [0, 1, 2]


def network(recipe: Settings) -> Settings:
    """Return the settings of a recipe that all learners share."""
    return {name: recipe[name] for name in (*_NETWORK, "zoom") if name in recipe}


def method(recipe: Settings) -> Settings:
    """Return the settings of a recipe that belong to CSSL."""
    return {name: recipe[name] for name in _METHOD if name in recipe}


def _paper() -> Setting:
    recipe = paper_recipe("cifar100")
    tree: Settings = {
        "data": {"name": "cifar100"},
        "stream": {"ordering": "class-incremental", "test_every": 20},
        "learner": network(recipe),
        "base": {"classes": 20, "epochs": 50, "batch": 128, "rate": 0.1, "weight_decay": 5e-4, "augment": CROPS},
        "offline": {"epochs": 200, "batch": 128, "rate": 0.1, "weight_decay": 5e-4, "augment": CROPS},
        "seeds": _SEEDS,
        "prequential": False,
        "checkpoint_every": 1000,
    }
    large = {**IMAGENET, "base_init": True}
    return Setting("paper", tree, 50_000, 3072, method(recipe), pretrained={"init": "base"}, large=large)


def _lab(classes: int, per_class: int, test_every: int, **method_changes: Any) -> Setting:
    tree: Settings = {
        "data": {"name": "cifar100", "classes": classes, "per_class": per_class, "test_per_class": 100},
        "stream": {"ordering": "class-incremental", "test_every": test_every},
        "learner": {"model": "resnet10-16", "size": 16, "channels": 3, "classes": classes, "normalize": "cifar100"},
        "base": {"classes": classes // 5, "epochs": 30, "batch": 64, "augment": CROPS},
        "offline": {"epochs": 30, "batch": 64, "rate": 0.1, "weight_decay": 5e-4, "augment": CROPS},
        "pretrain": {
            "data": {"name": "cifar100", "classes": list(PRETRAINING), "per_class": 250, "test_per_class": 100},
            **{"epochs": 20, "batch": 64, "rate": 0.1, "weight_decay": 5e-4, "augment": CROPS},
        },
        "seeds": _SEEDS,
        "prequential": False,
        "checkpoint_every": 1000,
        "threads": 1,
    }
    pre = {"init": "pretrained"}
    cssl_settings = {**method(paper_recipe("cifar100")), **method_changes}
    large = {**pre, "base_init": True}
    return Setting("lab", tree, classes * per_class, 768, cssl_settings, pretrained=pre, large=large)


def desk() -> Setting:
    """Return the paper's whole stream of CIFAR-100 with smaller images and a smaller network, for two cores."""
    recipe = paper_recipe("cifar100")
    offline = {"batch": 128, "rate": 0.1, "weight_decay": 5e-4, "augment": CROPS}
    tree: Settings = {
        "data": {"name": "cifar100"},
        "stream": {"ordering": "class-incremental", "test_every": 20},
        "learner": {"model": "resnet14-16", "size": 16, "channels": 3, "classes": 100, "normalize": "cifar100"},
        "base": {**offline, "classes": 20, "epochs": 50},
        "offline": {**offline, "epochs": 101},  # of as many image updates as the stream has, 100 replayed per step
        "seeds": _SEEDS,
        "prequential": False,
        "checkpoint_every": 1000,
        "threads": 1,
    }
    return Setting("desk", tree, 50_000, 768, method(recipe), pretrained={"init": "base"}, large={"init": "base"})


def _of_scale(scale: str, lab: Setting) -> Setting:
    return {"lab": lab, "desk": desk(), "paper": _paper()}[scale]


def long(scale: str) -> Setting:
    """Return where strong augmentation is tested: at lab scale 10 classes of 200 images, each replayed often."""
    return _of_scale(scale, _lab(10, 200, 1, replay=200))


def short(scale: str) -> Setting:
    """Return where the buffer is tested: at lab scale 20 classes of 100 images."""
    return _of_scale(scale, _lab(20, 100, 4, replay=32, augment=CROPS))


def cssl(setting: Setting, **changes: Any) -> Settings:
    """Return CSSL as it is in a setting."""
    return {"kind": "cssl", **setting.method, **changes}


def remind(setting: Setting, **changes: Any) -> Settings:
    """Return REMIND: the rate falls from 0.1 to 0.001 over each class, everything may be kept."""
    settings: Settings = {
        "kind": "remind",
        "replay": setting.method["replay"],
        "rate": "linear(0.1, 0.001)",
        "capacity": None,
    }
    settings |= {"weight_decay": 1e-5, "momentum": 0.9, "evict": "largest-class"}
    if setting.scale == "paper":
        settings["codebooks"] = 32
    return {**settings, **changes}


def exstream(setting: Setting, share: float = 1.0, **changes: Any) -> Settings:
    """Return ExStream, whose buffers hold a share of each class."""
    classes = setting.tree["learner"]["classes"]
    settings = {"kind": "exstream", "per_class": max(2, round(share * setting.images / classes)), "rate": 2e-3}
    return {**settings, **setting.large, **changes}


def slda(setting: Setting, **changes: Any) -> Settings:
    """Return Deep SLDA with plastic covariance."""
    return {"kind": "deep-slda", "covariance": "plastic", **setting.large, **changes}


LONG = (
    "CIFAR-100 at 16 x 16, 10 classes of 200 images, B = 200, a ResNet of 155,000 parameters, a test after every "
    "class. Few images that are replayed often: the note on T:data_aug says why. Pre-training is on 20 classes that "
    "are not streamed. Where everything fits it is stored raw."
)
SHORT_STREAM = (
    "CIFAR-100 at 16 x 16, 20 classes of 100 images, B = 32, a ResNet of 155,000 parameters, tested after every "
)
CROPS_ONLY = " CSSL crops and flips only (see crossing). Pre-training is on 20 classes that are not streamed."
SHORT = SHORT_STREAM + "fourth class." + CROPS_ONLY
DESK = (
    "All of CIFAR-100, 100 classes of 500 images, at 16 x 16, class by class, tested on the 10,000 test images after "
    "every 20 classes; a ResNet of 181,000 parameters, B = 100. Capacities are the paper's shares of the raw bytes. "
    "Base initialisation is on the first 20 classes, offline training has as many image updates as the stream."
)


def everything(setting: Setting) -> Settings:
    """Return a buffer for all images; at lab scale raw, so that tables can share runs."""
    return {"codec": "raw", "capacity": None} if setting.lab else {"capacity": setting.bytes("150MB", 1.0)}
