"""CORe50 in four orders: the paper's section 5.2 and appendix A.2. At lab scale tracks of traffic signs stand in."""

from __future__ import annotations

from typing import Any

from coldstream.learners.recipes import paper_recipe
from coldstream.paper import common
from coldstream.paper.catalog import Claim, PaperExperiment, Setting, Settings, each_better

SIGNS = ("01", "12", "13", "14", "17", "18", "25", "33", "38", "40")
"""Ten signs that differ in shape or colour, so that a third track of each can be recognised at all."""
ORDERS = {"ID": "iid", "CID": "class-iid", "I": "instance", "CI": "class-instance"}
_STEPS = {"epochs": 40, "rate": 0.01, "weight_decay": 1e-4, "drops": (15, 30)}


def setting(scale: str) -> Setting:
    """Return where it takes place."""
    recipe = paper_recipe("core50")
    method = common.method(recipe)
    if scale == "lab":
        tree: Settings = {
            "data": {"name": "gtsrb", "classes": list(SIGNS)},
            "learner": {"model": "resnet10-16", "size": 16, "channels": 3, "classes": 10, "normalize": "half"},
            "base": {"epochs": 40, "batch": 32, "rate": 0.05, "augment": "none"},
            "offline": {"epochs": 40, "batch": 32, "rate": 0.05, "augment": "crop"},
            "pretrain": {
                "data": {"name": "gtsrb", "classes": [f"{n:02}" for n in range(43) if f"{n:02}" not in SIGNS]},
                **{"epochs": 15, "batch": 64, "rate": 0.05, "augment": "crop"},
            },
            "seeds": [0, 1, 2],
            "prequential": False,
            "threads": 1,
        }
        lab_method = {"replay": 32, "augment": "crop|autoaugment(imagenet)|mixup(0.1)/cutmix(0.8)"}
        return Setting("lab", tree, 600, 768, {**method, **lab_method}, pretrained={"init": "pretrained"})
    tree = {
        "data": {"name": "core50"},
        "learner": common.network(recipe),
        "base": {**_STEPS, "batch": 128, "augment": "none"},
        "offline": {**_STEPS, "batch": 128, "augment": "crop|flip"},
        "seeds": list(range(10)),
        "prequential": False,
    }
    return Setting("paper", tree, 6000, 49_152, method, pretrained={"init": "IMAGENET1K_V1"})


def _cssl(where: Setting, **changes: Any) -> Settings:
    return {"kind": "cssl", **where.method, **changes}


def _arms(where: Setting, pre: bool) -> dict[str, Settings]:
    small, middle, large = (
        {"codec": codec, "capacity": where.bytes(f"{size}MB", size / 294.9)}
        for codec, size in (("resize(0.75)|quantize(4)", 100), ("quantize(4)", 200), ("raw", 300))
    )
    begin = where.pretrained if pre else {}
    frozen: Settings = {**begin, "base_init": True} if pre else {"init": "base"}
    remind: Settings = {"kind": "remind", "replay": 20, "rate": "constant(0.01)", "weight_decay": 1e-4}
    remind |= {"crop": False, "mixup": None, "capacity": None, **(begin if pre else {})}
    whole = where.images // 10
    return {
        "ExStream": {"kind": "exstream", "per_class": whole, "rate": 2e-3, **frozen},
        "Deep SLDA": {"kind": "deep-slda", "covariance": "plastic", **frozen},
        "REMIND": remind,
        "REMIND + extra params": {**remind, "extra_params": True},
        "CSSL, 100 Mb": _cssl(where, **small, **begin),
        "CSSL, 200 Mb": _cssl(where, **middle, **begin),
        "CSSL, 300 Mb": _cssl(where, **large, **begin),
    }


def _parts(where: Setting) -> dict[str, Settings]:
    return {
        name + (", pre-trained" if pre else ""): where.experiment(_arms(where, pre), stream={"ordering": order})
        for pre in (False, True)
        for name, order in ORDERS.items()
    }


_PAPER = {
    "ExStream": ((0.719, 0.635, 0.734, 0.627), (0.959, 0.936, 0.954, 0.935)),
    "Deep SLDA": ((0.721, 0.660, 0.730, 0.626), (0.971, 0.952, 0.962, 0.957)),
    "REMIND": ((0.719, 0.628, 0.741, 0.600), (0.985, 0.971, 0.986, 0.973)),
    "REMIND + extra params": ((0.636, 0.586, 0.693, 0.594), (0.994, 0.961, 0.996, 0.966)),
    "CSSL, 100 Mb": ((1.106, 0.977, 1.071, 0.990), (0.963, 0.979, 0.962, 0.976)),
    "CSSL, 200 Mb": ((1.107, 1.005, 1.104, 0.995), (0.968, 0.981, 0.977, 0.976)),
    "CSSL, 300 Mb": ((1.153, 1.009, 1.112, 1.024), (0.976, 0.986, 0.974, 0.979)),
}
_CSSL = [f"CSSL, {size} Mb" for size in (100, 200, 300)]
_BASELINES = [name for name in _PAPER if not name.startswith("CSSL")]

ORDERINGS = PaperExperiment(
    name="T:core50",
    title="CORe50 in four orders",
    varies="the order (ID i.i.d., CID class i.i.d., I instance, CI class-instance), method, capacity, pre-training",
    fixed="data, network, rates; CSSL at 100 Mb stores 4 bits and 75% of the area, at 200 Mb 4 bits, at 300 Mb all",
    setting=setting,
    parts=_parts,
    metrics=("omega_per_event", "omega_final"),
    layout="columns",
    numbers={
        (order + suffix, name, "omega_final"): (value, None)
        for name, both in _PAPER.items()
        for suffix, values in zip(("", ", pre-trained"), both, strict=True)
        for order, value in zip(ORDERS, values, strict=True)
    },
    claims=(
        Claim(
            "From a cold start CSSL is better than every baseline, in every order and at every capacity",
            tuple(comparison for order in ORDERS for comparison in each_better(order, _CSSL, _BASELINES)),
        ),
        Claim(
            "Pre-trained, CSSL is better than every baseline where classes come one after another",
            each_better("CID, pre-trained", _CSSL, _BASELINES) + each_better("CI, pre-trained", _CSSL, _BASELINES),
        ),
    ),
    about={
        "lab": "Tracks of GTSRB stand in for CORe50's clips: ten signs, two tracks of 30 frames each to learn, a "
        "third one to test, at 16 x 16, in five batches; a ResNet of 155,000 parameters, B = 32, no flips, "
        "capacities of the paper's shares; base initialisation and offline training at rate 0.05; pre-training on "
        "the 33 other signs. Three orders of each kind where the paper has ten."
    },
)
