"""Every method side by side, each with the settings that the search chose: ours, not the paper's."""

from __future__ import annotations

from coldstream.paper import common, search
from coldstream.paper.catalog import Claim, Comparison, Figure, PaperExperiment, Setting, Settings, each_better

CHOSEN: dict[str, Settings] = {
    "cssl": {"rate": "linear(0.03, 0.0003)"},
    "er": {"rate": "linear(0.03, 0.0003)"},
    "er-ace": {"rate": "linear(0.03, 0.0003)"},
    "der++": {"rate": "linear(0.03, 0.0003)"},
    "der++, 10 per update": {"rate": "linear(0.1, 0.001)"},
    "remind": {"rate": "linear(0.1, 0.001)", "base.epochs": 200},
    "deep-slda": {"base.epochs": 100, "base.rate": 0.1},
    "exstream": {"rate": 0.002, "base.epochs": 100},
    "linear-probe": {"rate": "linear(0.3, 0.003)", "base.epochs": 100},
}
"""What the search chose (`search.chosen` of docs/results/search-lab.json)."""
OFFLINE: Settings = {**search.OFFLINE, "epochs": 200, "rate": 0.3, "last_only": True}
"""The reference: twice as many image updates as the stream has. 400 epochs are 2.4 points better on the validation
images, and take too long for five seeds."""

ALL_LAYERS = ("ER", "ER-ACE", "DER++")
FROZEN = ("REMIND", "Deep SLDA", "ExStream", "linear probe")
FROM_COLD = Comparison(("CIFAR100", "CSSL"), ("CIFAR100", "Deep SLDA"), "average_accuracy")
"""CSSL, and the best on validation images of the methods that freeze layers and keep to the bytes."""
PRETRAINING = Comparison(("CIFAR100", "CSSL + pre-train"), ("CIFAR100", "CSSL"), "average_accuracy")
POLICY = Comparison(("CIFAR100", "CSSL"), ("CIFAR100", "CSSL, crops and flips"), "average_accuracy")
_BYTES = {"capacity": f"{search.BYTES}B"}


def setting(scale: str) -> Setting:
    """Return the setting of the search, tested on the test images, beside offline training."""
    where = search.setting(scale)
    data = {"name": "cifar100", "classes": 20, "per_class": 100, "test_per_class": 100}
    offline = {key: value for key, value in OFFLINE.items() if key not in ("kind", "grid")}
    tree = {**where.tree, "data": data, "offline": {**offline, "seeds": [0]}, "seeds": [0, 1, 2, 3, 4]}
    short = common.short(scale)
    tree["pretrain"] = short.tree["pretrain"]
    return Setting(where.scale, tree, where.images, where.image_bytes, where.method, pretrained=short.pretrained)


def arm(method: str, **changes: object) -> Settings:
    """Return a method as the search has it, with the values that it chose."""
    settings = {key: value for key, value in search.GRIDS[method].items() if key != "grid"}
    for key, value in CHOSEN[method].items():
        section, _, name = key.rpartition(".")
        (settings.setdefault(section, {}) if section else settings)[name] = value
    return {**settings, **changes}


def _parts(where: Setting) -> dict[str, Settings]:
    arms = {
        "CSSL": arm("cssl"),
        "CSSL, crops and flips": arm("cssl", augment=common.CROPS),
        "CSSL + pre-train": arm("cssl", **where.pretrained),
        "ColdStart": {"kind": "cold-start", **_BYTES},
        "ER": arm("er"),
        "ER-ACE": arm("er-ace"),
        "DER++": arm("der++"),
        "DER++, 10 per update": arm("der++, 10 per update"),
        "REMIND": arm("remind", **_BYTES),
        "REMIND, unbounded": arm("remind"),
        "REMIND + extra params": arm("remind", extra_params=True, **_BYTES),
        "Deep SLDA": arm("deep-slda"),
        "ExStream": arm("exstream"),
        "linear probe": arm("linear-probe"),
    }
    return {"CIFAR100": where.experiment(arms, learner={"replay": 100})}


BASELINES = PaperExperiment(
    name="baselines",
    title="Every method with its searched settings",
    varies="the method",
    fixed="data, order, network, 100 replayed examples per step; the bytes of 200 raw images, a tenth of the stream, "
    "for what a method stores, unless it is unbounded",
    setting=setting,
    parts=_parts,
    metrics=("final_accuracy", "average_accuracy", "omega_final", "average_ece", "forgetting"),
    numbers={},
    ours=True,
    claims=(
        Claim(
            "CSSL ends above each method that freezes layers, in the same bytes",
            each_better("CIFAR100", "CSSL", FROZEN, metric="final_accuracy"),
        ),
        Claim(
            "CSSL ends above each other method that replays images and trains all layers",
            each_better("CIFAR100", "CSSL", ALL_LAYERS, metric="final_accuracy"),
        ),
        Claim("CSSL is better on average than the best of these, Deep SLDA", (FROM_COLD,)),
        Claim("Pre-training improves CSSL", (PRETRAINING,)),
        Claim(
            "REMIND with extra parameters ends above REMIND, in the same bytes",
            each_better("CIFAR100", "REMIND + extra params", "REMIND", metric="final_accuracy"),
        ),
        Claim("ColdStart ends above CSSL", each_better("CIFAR100", "ColdStart", "CSSL", metric="final_accuracy")),
        Claim(
            "The full policy ends above crops and flips where the buffer is small",
            each_better("CIFAR100", "CSSL", "CSSL, crops and flips", metric="final_accuracy"),
        ),
    ),
    about={
        "lab": "CIFAR-100 at 16 x 16, 20 classes of 100 images class by class, a ResNet of 155,000 parameters, "
        "tested after every fourth class on 100 test images per class. Base initialisation is on the first four. "
        "The settings of each method are those that the search chose on other images; ColdStart has its own "
        "defaults. Pre-training is on 20 classes that are not streamed. Ω_all is of seed 0, the only one with "
        "offline references. The paper has no such experiment."
    },
    figures=(Figure("events", "Accuracy on the way", {"value": "accuracy", "label": "accuracy, %"}),),
)
