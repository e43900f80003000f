"""Class-incremental CIFAR-100: the paper's section 5.1 and appendices A.1, A.5, A.7 and B."""

from __future__ import annotations

from coldstream.paper.catalog import (
    Claim,
    Comparison,
    Figure,
    PaperExperiment,
    Setting,
    Settings,
    each_better,
    ordered,
)
from coldstream.paper.common import (
    CROPS,
    CROPS_ONLY,
    DESK,
    FULL,
    IMAGENET,
    LONG,
    MIX,
    SHORT,
    SHORT_STREAM,
    cssl,
    everything,
    exstream,
    long,
    remind,
    short,
    slda,
)


def _capacities(setting: Setting) -> dict[str, Settings]:
    """Return CSSL's capacities; compressed, everything fits in what the paper calls 90 Mb and more."""
    return {
        "30 Mb": {"capacity": setting.bytes("30MB", 0.2)},
        "60 Mb": {"capacity": setting.bytes("60MB", 0.4)},
        "90-150 Mb": everything(setting),
    }


def _by_capacity(setting: Setting) -> dict[str, Settings]:
    arms = {f"CSSL, {name}": cssl(setting, **capacity) for name, capacity in _capacities(setting).items()}
    arms |= {
        f"CSSL + pre-train, {name}": cssl(setting, **capacity, **setting.pretrained)
        for name, capacity in _capacities(setting).items()
    }
    arms |= {f"ExStream, {30 * k} Mb": exstream(setting, k / 5) for k in range(1, 6)}
    arms |= {"Deep SLDA": slda(setting), "REMIND": remind(setting)}
    arms["REMIND + extra params"] = remind(setting, extra_params=True)
    if setting.desk:
        arms = {name: arm for name, arm in arms.items() if name not in _NOT_AT_DESK}
    return {"CIFAR100": setting.experiment(arms)}


_NOT_AT_DESK = ("CSSL, 60 Mb", "CSSL + pre-train, 60 Mb", *(f"ExStream, {size} Mb" for size in (60, 90, 120, 150)))
_SIZES = ("30 Mb", "60 Mb", "90-150 Mb")

CAPACITY = PaperExperiment(
    name="fig:cifar100_cssl",
    title="Class-incremental CIFAR-100 by buffer capacity",
    varies="the method, and the capacity of the replay buffer (30 to 150 Mb in the paper, a fifth to all of it here)",
    fixed="data, order, network, replayed examples per step, rates; CSSL stores 6 bits and 66% of the area, at lab "
    "scale raw images where all fit",
    setting=short,
    parts=_by_capacity,
    metrics=("omega_per_event", "omega_final", "average_accuracy", "final_accuracy"),
    numbers={
        ("CIFAR100", "CSSL, 30 Mb", "omega_final"): (0.826, None),
        ("CIFAR100", "CSSL + pre-train, 90-150 Mb", "omega_final"): (0.974, None),
        ("CIFAR100", "REMIND + extra params", "omega_final"): (0.790, None),
    },
    claims=(
        Claim(
            "CSSL from a cold start is better than every baseline at every capacity",
            tuple(
                comparison
                for size, same in zip(_SIZES, ("30 Mb", "60 Mb", "150 Mb"), strict=True)
                for comparison in each_better(
                    "CIFAR100",
                    f"CSSL, {size}",
                    ["REMIND", "REMIND + extra params", "Deep SLDA", f"ExStream, {same}"],
                    metric="average_accuracy",
                )
            ),
        ),
        Claim(
            "Pre-training improves CSSL at every capacity",
            tuple(
                c
                for size in _SIZES
                for c in each_better(
                    "CIFAR100", f"CSSL + pre-train, {size}", f"CSSL, {size}", metric="average_accuracy"
                )
            ),
        ),
        Claim(
            "REMIND with extra parameters is better than REMIND",
            each_better("CIFAR100", "REMIND + extra params", "REMIND", metric="average_accuracy"),
        ),
    ),
    about={"lab": SHORT, "desk": DESK},
    figures=(Figure("capacity", "Ω_all by capacity"),),
)


AUGMENTATIONS = {
    "none": CROPS,
    "MU": f"{CROPS}|mixup(0.1)",
    "CM": f"{CROPS}|cutmix(0.8)",
    "MU + CM": f"{CROPS}|{MIX}",
    "AA": f"{CROPS}|autoaugment(cifar10)",
    "MU + AA": f"{CROPS}|autoaugment(cifar10)|mixup(0.1)",
    "CM + AA": f"{CROPS}|autoaugment(cifar10)|cutmix(0.8)",
    "MU + CM + AA": FULL,
    "MU + RA": f"{CROPS}|randaugment(1, 9)|mixup(0.1)",
    "CM + RA": f"{CROPS}|randaugment(1, 9)|cutmix(0.8)",
    "MU + CM + RA": f"{CROPS}|randaugment(1, 9)|{MIX}",
}
_ALL = "MU + CM + AA"
_ALPHAS = (0.1, 0.4, 0.8, 1.0, 1.2)


def _augmentation(setting: Setting) -> dict[str, Settings]:
    whole = {"codec": "raw", "capacity": None}
    if setting.desk:
        arms = {name: cssl(setting, **whole, augment=AUGMENTATIONS[name]) for name in ("none", "MU + CM", "AA", _ALL)}
        sizes = {"policies": "resnet14-16", "fewer parameters": "resnet8-16", "more parameters": "resnet18-20"}
        return {part: setting.experiment(arms, learner={"model": model}) for part, model in sizes.items()}
    parts = {
        "policies": setting.experiment(
            {name: cssl(setting, **whole, augment=policy) for name, policy in AUGMENTATIONS.items()}
        )
    }
    # The grids that the paper searched. At lab scale they are searched where a run is short, one α at a time.
    small = short("lab") if setting.lab else setting
    pairs = [(a, b) for a in _ALPHAS for b in _ALPHAS]
    if setting.lab:
        pairs = [(a, 0.8) for a in _ALPHAS] + [(0.1, b) for b in _ALPHAS if b != 0.8]
    alphas = {f"mixup {a}, cutmix {b}": f"{CROPS}|mixup({a})/cutmix({b})" for a, b in pairs}
    strengths = {f"{n} of magnitude {m}": f"{CROPS}|randaugment({n}, {m})" for n in (1, 2) for m in (4, 9, 14)}
    for part, policies in (("grid of α", alphas), ("grid of RandAugment", strengths)):
        arms = {name: cssl(small, **whole, augment=policy) for name, policy in policies.items()}
        parts[part] = small.experiment(arms, seeds=[0])
    return parts


AUGMENTATION = PaperExperiment(
    name="T:data_aug",
    title="Augmentation policies",
    varies="which of Mixup (MU), CutMix (CM), AutoAugment (AA) and RandAugment (RA) come on top of crops and flips",
    fixed="class-incremental CIFAR-100, everything stored raw, network, replay, rates",
    setting=long,
    parts=_augmentation,
    metrics=("omega_per_event", "omega_final", "final_accuracy", "average_ece", "average_ece_debiased"),
    numbers={
        ("policies", name, "omega_final"): number
        for name, number in {
            "none": (0.689, 0.001),
            "MU": (0.807, 0.012),
            "CM": (0.863, 0.020),
            "MU + CM": (0.877, 0.004),
            "AA": (0.822, 0.037),
            "MU + AA": (0.886, 0.018),
            "CM + AA": (0.852, 0.019),
            "MU + CM + AA": (0.886, 0.002),
            "MU + RA": (0.856, 0.025),
            "CM + RA": (0.857, 0.008),
            "MU + CM + RA": (0.875, 0.005),
        }.items()
    },
    claims=(
        Claim(
            "Every stronger policy is better than crops and flips",
            each_better("policies", [name for name in AUGMENTATIONS if name != "none"], "none"),
        ),
        Claim(
            "Crops and flips reach 78% or less of the Ω_all of Mixup, CutMix and AutoAugment together",
            (Comparison(("policies", _ALL), ("policies", "none"), share=0.78),),
        ),
        Claim(
            "Mixup, CutMix and AutoAugment together are the best policy (a tie with Mixup and AutoAugment aside)",
            each_better(
                "policies", "MU + CM + AA", [n for n in AUGMENTATIONS if n not in ("MU + CM + AA", "MU + AA")]
            ),
        ),
    ),
    about={
        "lab": LONG
        + " RandAugment is one operation of magnitude 9; both grids ran on the short stream (20 classes of 100 "
        "images, B = 32), one seed, Mixup's α with CutMix's at 0.8 and the other way round.",
        "desk": DESK + " Everything is stored raw. Fewer parameters are 84,000, more are 1.1 million.",
    },
)


def _track(setting: Setting) -> dict[str, Settings]:
    whole = {"codec": "raw", "capacity": None}
    arms = {
        "CSSL": cssl(setting, **whole),
        "CSSL + pre-train": cssl(setting, **whole, **setting.pretrained),
        "ExStream": exstream(setting),
        "Deep SLDA": slda(setting),
        "REMIND": remind(setting),
        "REMIND + extra params": remind(setting, extra_params=True),
    }
    if setting.desk:  # the runs of fig:cifar100_cssl, tested after every 20 classes
        del arms["ExStream"]
        arms |= {
            "CSSL": cssl(setting, **everything(setting)),
            "CSSL + pre-train": cssl(setting, **everything(setting), **setting.pretrained),
        }
        return {"CIFAR100": setting.experiment(arms)}
    return {"CIFAR100": setting.experiment(arms, stream={"test_every": 1}, offline={"last_only": True})}


TRACK = PaperExperiment(
    name="fig:cifar_acc_track",
    title="Accuracy after every class",
    varies="the method",
    fixed="class-incremental CIFAR-100, everything stored; at lab and paper scale raw, with a test after every class",
    setting=short,
    parts=_track,
    metrics=("omega_final", "average_accuracy", "final_accuracy"),
    numbers={},
    claims=(
        Claim(
            "At the end cold CSSL is above every baseline",
            each_better(
                "CIFAR100",
                "CSSL",
                ["ExStream", "Deep SLDA", "REMIND", "REMIND + extra params"],
                metric="final_accuracy",
            ),
        ),
    ),
    about={
        "lab": SHORT_STREAM + "class." + CROPS_ONLY,
        "desk": DESK + " CSSL stores everything compressed: the runs of fig:cifar100_cssl.",
    },
    figures=(Figure("events", "Accuracy on the way", {"value": "accuracy", "label": "accuracy, %"}),),
)


def _gap(setting: Setting) -> dict[str, Settings]:
    short_epochs = {"epochs": 15, "rate": 0.4} if setting.lab else {"epochs": 70, "rate": 2.0}
    e2e = {"epochs": 10, "fine_epochs": 8} if setting.lab else {"epochs": 40, "fine_epochs": 30}
    offline = {key: setting.tree["offline"][key] for key in ("epochs", "batch", "rate", "weight_decay", "augment")}
    fewer = 16 if setting.lab else 50
    arms: dict[str, Settings] = {
        "iCaRL": {"kind": "icarl", "exemplars": None, **short_epochs},
        "E2EIL": {"kind": "e2eil", "exemplars": None, **e2e},
        "REMIND, fewer replayed": remind(setting, replay=fewer, weight_decay=5e-4),
        "REMIND": remind(setting, weight_decay=5e-4),
        "offline": {"kind": "offline", **offline},
    }
    return {"CIFAR100": setting.experiment(arms, offline={"enabled": False})}


GAP = PaperExperiment(
    name="fig:perf_gap",
    title="The gap to offline training, and what is taken for what",
    varies="the method: iCaRL and E2EIL batch by batch, REMIND with 50 or 100 replayed per step, offline training",
    fixed="class-incremental CIFAR-100 in five batches, everything kept, network",
    setting=short,
    parts=_gap,
    metrics=("final_accuracy", "bias_to_last_batch", "bias_to_last_class"),
    numbers={("CIFAR100", "offline", "final_accuracy"): (0.7861, None)},
    claims=(
        Claim(
            "REMIND ends more than 20 of 78.6 points, a quarter, below offline training",
            (Comparison(("CIFAR100", "offline"), ("CIFAR100", "REMIND"), "final_accuracy", share=0.7455),),
        ),
        Claim(
            "iCaRL and E2EIL take other classes for those of the last batch more than REMIND does",
            each_better("CIFAR100", ["iCaRL", "E2EIL"], "REMIND", metric="bias_to_last_batch"),
        ),
        Claim(
            "REMIND takes other classes for the last one more than iCaRL and E2EIL do",
            each_better("CIFAR100", "REMIND", ["iCaRL", "E2EIL"], metric="bias_to_last_class"),
        ),
        Claim(
            "REMIND takes other classes for the last one less with more replayed examples",
            each_better("CIFAR100", "REMIND, fewer replayed", "REMIND", metric="bias_to_last_class"),
        ),
    ),
    about={
        "lab": SHORT_STREAM
        + "fourth class. REMIND replays 16 or 32 per step where the paper has 50 or 100; iCaRL trains 15 epochs "
        "per batch at rate 0.4, E2EIL 10 and 8, offline training 30."
    },
    figures=(
        Figure("events", "Accuracy on the way", {"value": "accuracy", "label": "accuracy, %"}),
        Figure("confusion", "What is taken for what at the end (fig:class_imb)"),
    ),
)


FREEZES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def _freezing(setting: Setting) -> dict[str, Settings]:
    recipe = {key: setting.tree["offline"][key] for key in ("epochs", "batch", "weight_decay", "augment")}
    begin: Settings = setting.pretrained if setting.lab else IMAGENET
    arms = {
        f"{share:.0%} frozen": {"kind": "offline", **recipe, "rate": 0.01, **begin, "freeze": share}
        for share in FREEZES
    }
    stream = {"ordering": "iid", "test_every": None, "batches": 1}
    parts = {"CIFAR100": setting.experiment(arms, stream=stream, offline={"enabled": False})}
    if not setting.lab:
        parts["CIFAR10"] = setting.experiment(
            arms, stream=stream, offline={"enabled": False}, data={"name": "cifar10"}, learner={"classes": 10}
        )
    return parts


FREEZING = PaperExperiment(
    name="fig:layer_freeze",
    title="Fine-tuning with a frozen share",
    varies="the share of the pre-trained network's parameters, from the input on, that stay as they are",
    fixed="offline fine-tuning on all images, recipe, network",
    setting=short,
    parts=_freezing,
    metrics=("final_accuracy", "frozen_share"),
    numbers={},
    claims=(
        Claim(
            "Accuracy falls with the frozen share",
            ordered("CIFAR100", [f"{share:.0%} frozen" for share in FREEZES], metric="final_accuracy"),
        ),
        Claim(
            "Training everything is better than training the head alone",
            each_better("CIFAR100", "0% frozen", "100% frozen", metric="final_accuracy"),
        ),
    ),
    about={
        "lab": "CIFAR-100 at 16 x 16, 20 classes of 100 images, 30 epochs at rate 0.01, after pre-training on 20 "
        "classes that are not among them. (The paper: ImageNet's weights, CIFAR-10 and CIFAR-100; it does not give "
        "its recipe.)"
    },
    figures=(Figure("bars", "Accuracy by frozen share", {"value": "final_accuracy", "label": "accuracy, %"}),),
)
