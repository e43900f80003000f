"""The paper's recipes against its appendix, transcribed here, and each running on small images."""

import numpy as np
import pytest

from coldstream import CSSL

# Appendix A: rate, weight decay, replay, augmentation, buffer.
APPENDIX = {
    "cifar100": {
        "rate": "linear(0.1, 0.001)",
        "weight_decay": 1e-5,
        "augment": "crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)",
        "capacity": "30MB",
        "codec": "resize(0.66)|quantize(6)",
        "model": "resnet18-cifar",
        "classes": 100,
        "size": 32,
    },
    "imagenet": {
        "rate": "linear(0.1, 0.001)",
        "weight_decay": 1e-5,
        "augment": "resizedcrop|flip|autoaugment(imagenet)|mixup(0.1)/cutmix(0.8)",
        "capacity": "1.5GB",
        "codec": "resize(0.75)|quantize(4)",
        "model": "resnet18",
        "classes": 1000,
        "size": 224,
    },
    "core50": {
        "rate": "constant(0.01)",
        "weight_decay": 1e-4,
        "augment": "resizedcrop|flip|autoaugment(imagenet)|mixup(0.1)/cutmix(0.8)",
        "capacity": "100MB",
        "codec": "resize(0.75)|quantize(4)",
        "model": "resnet18",
        "classes": 10,
        "size": 128,
    },
    "multi-task": {
        "rate": "linear(0.1, 0.001)",
        "weight_decay": 1e-5,
        "augment": "resizedcrop|flip|autoaugment(imagenet)|mixup(0.1)/cutmix(0.8)",
        "capacity": None,
        "codec": "raw",
        "model": "resnet18",
        "size": 224,
    },
}


@pytest.mark.parametrize("name", APPENDIX)
def test_settings_and_a_few_steps(name):
    learner = CSSL.paper(name, counts={"a": 3, "b": 2})
    for setting, value in (APPENDIX[name] | {"replay": 100, "momentum": 0.9, "evict": "largest-class"}).items():
        assert getattr(learner.settings, setting) == value
    side = APPENDIX[name]["size"]
    images = np.random.default_rng(0).integers(0, 256, (3, side, side + 10, 3), dtype=np.uint8)
    for image, label in zip(images, "aba", strict=True):
        learner.learn_one(image, label)
    assert learner.predict_proba_many(images).shape == (3, 2)


def test_changes_on_top():
    learner = CSSL.paper("core50", capacity="300MB", codec="raw")
    assert (learner.settings.capacity, learner.settings.codec) == ("300MB", "raw")
