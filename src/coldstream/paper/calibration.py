"""Confidence calibration on CIFAR-100: the paper's sections 5.4 and A.4, class by class and shuffled."""

from __future__ import annotations

from coldstream.paper.catalog import Claim, Comparison, Figure, PaperExperiment, Setting, Settings, each_better
from coldstream.paper.common import CROPS, DESK, IMAGENET, LONG, cssl, everything, exstream, long, remind, slda
from coldstream.paper.imagenet import calibration


def _calibration(setting: Setting) -> dict[str, Settings]:
    small, large = {"capacity": setting.bytes("30MB", 0.2)}, everything(setting)
    none = {"augment": CROPS}
    # Images for ImageNet's network are larger, so that bytes would say something else: as many images as without.
    few, many, pre = small, large, setting.pretrained
    if setting.scale == "paper":
        few, many, pre = {"capacity": 19_723}, {"capacity": None}, IMAGENET
    arms = {
        "ExStream": exstream(setting),
        "Deep SLDA": slda(setting),
        "REMIND": remind(setting),
        "CSSL + pre-train, 30 Mb": cssl(setting, **few, **pre),
        "CSSL + pre-train, 150 Mb": cssl(setting, **many, **pre),
        "CSSL + pre-train, no aug., 150 Mb": cssl(setting, **many, **pre, **none),
        "CSSL, 30 Mb": cssl(setting, **small),
        "CSSL, 150 Mb": cssl(setting, **large),
        "CSSL, no aug., 150 Mb": cssl(setting, **large, **none),
    }
    if setting.desk:
        del arms["ExStream"]  # an epoch over 50,000 prototypes for each example
        return {"CIFAR100": setting.experiment(arms)}
    return {"CIFAR100": setting.experiment(arms), "ImageNet": calibration(setting.scale)}


CALIBRATION = PaperExperiment(
    name="tab:cc_cifar100",
    title="Calibration by method and augmentation",
    varies="the method, pre-training, the capacity, and whether CSSL augments beyond crops and flips",
    fixed="data, order, network; ECE with 15 bins, averaged over the tests",
    setting=long,
    parts=_calibration,
    metrics=("average_ece", "average_ece_debiased", "final_accuracy"),
    numbers={
        ("CIFAR100", "ExStream", "average_ece"): (0.301, 0.008),
        ("CIFAR100", "Deep SLDA", "average_ece"): (0.296, 0.012),
        ("CIFAR100", "REMIND", "average_ece"): (0.023, 0.000),
        ("CIFAR100", "CSSL + pre-train, 30 Mb", "average_ece"): (0.031, 0.005),
        ("CIFAR100", "CSSL + pre-train, 150 Mb", "average_ece"): (0.023, 0.003),
        ("CIFAR100", "CSSL + pre-train, no aug., 150 Mb", "average_ece"): (0.161, 0.031),
        ("CIFAR100", "CSSL, 30 Mb", "average_ece"): (0.040, 0.001),
        ("CIFAR100", "CSSL, 150 Mb", "average_ece"): (0.036, 0.002),
        ("CIFAR100", "CSSL, no aug., 150 Mb", "average_ece"): (0.149, 0.015),
        ("ImageNet", "REMIND", "average_ece"): (0.021, 0.005),
        ("ImageNet", "CSSL", "average_ece"): (0.043, 0.003),
        ("ImageNet", "CSSL, no aug.", "average_ece"): (0.266, 0.009),
    },
    claims=(
        Claim(
            "Without its augmentation CSSL is worse calibrated",
            tuple(
                Comparison(
                    ("CIFAR100", f"CSSL{pre}, 150 Mb"), ("CIFAR100", f"CSSL{pre}, no aug., 150 Mb"), "average_ece"
                )
                for pre in ("", " + pre-train")
            )
            + each_better("ImageNet", "CSSL", "CSSL, no aug.", metric="average_ece"),
        ),
        Claim(
            "CSSL is better calibrated than ExStream and Deep SLDA",
            each_better("CIFAR100", ["CSSL, 30 Mb", "CSSL, 150 Mb"], ["ExStream", "Deep SLDA"], metric="average_ece"),
        ),
        Claim(
            "REMIND is better calibrated than ExStream and Deep SLDA",
            each_better("CIFAR100", "REMIND", ["ExStream", "Deep SLDA"], metric="average_ece"),
        ),
        Claim(
            "Pre-training improves the calibration of CSSL",
            tuple(
                Comparison(("CIFAR100", f"CSSL + pre-train, {size}"), ("CIFAR100", f"CSSL, {size}"), "average_ece")
                for size in ("30 Mb", "150 Mb")
            ),
        ),
    ),
    about={
        "lab": LONG
        + " The part called ImageNet is on the stand-in that T:imagenet_cssl describes, CSSL with the full policy.",
        "desk": DESK,
    },
)


def _iid(setting: Setting) -> dict[str, Settings]:
    large = everything(setting)
    arms = {
        "CSSL": cssl(setting, **large),
        "CSSL + pre-train": cssl(setting, **large, **setting.pretrained),
        "CSSL, no aug.": cssl(setting, **large, augment=CROPS),
        "REMIND": remind(setting),
    }
    changes: Settings = {
        "stream": {"ordering": "iid", "test_every": None, "batches": 20},
        "offline": {"enabled": False},
    }
    if setting.lab:
        changes["data"] = {"per_class": 100}
    return {"iid": setting.experiment(arms, **changes)}


IID = PaperExperiment(
    name="fig:cc_cifar100",
    title="Calibration on the way, i.i.d. order",
    varies="the method, pre-training, and whether CSSL augments beyond crops and flips",
    fixed="CIFAR-100 in one shuffled stream, all classes in every test, everything stored",
    setting=long,
    parts=_iid,
    metrics=("average_ece", "average_ece_debiased", "final_accuracy"),
    numbers={},
    claims=(
        Claim(
            "Without its augmentation CSSL is worse calibrated",
            each_better("iid", "CSSL", "CSSL, no aug.", metric="average_ece"),
        ),
        Claim(
            "CSSL is better calibrated than REMIND",
            each_better("iid", ["CSSL", "CSSL + pre-train"], "REMIND", metric="average_ece"),
        ),
    ),
    about={"lab": LONG + " Here 100 images of each class come, all shuffled, with twenty tests."},
    figures=(Figure("events", "ECE on the way", {"value": "ece", "label": "ECE"}),),
)
