"""The paper's settings and results, transcribed from the paper itself: what the catalog is held against.

Every field was read in the paper, at the label that the comment beside it names (A: appendix, S: section); "spec"
marks what the paper leaves open or contradicts itself in, and what was settled then. A field on which the paper is
silent is not here. Parts and arms have the catalog's names, values are written as an experiment's settings are.

`EXPERIMENTS` has, by experiment and part:

    data, tasks     the data set, whole; or (task, data set) in the order of coming
    stream          ordering, test_every (classes between two tests), batches
    permutations    how many orders of the data results are averaged over
    base, offline   recipes of base initialisation and of offline training; drops=() is a cosine
    arms            settings of each learner, all that it ends up with; the arm "*" stands for every one. Beside
                    these `based`, whether it is base-initialised on the beginning of the stream, and `holds`, the
                    images that its buffer ends up with
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class AtLeast:
    """A number, or no bound at all (None)."""

    least: int

    def admits(self, value):
        return value is None or value >= self.least


@dataclass(frozen=True)
class Begins:
    start: str

    def admits(self, value):
        return str(value).startswith(self.start)


@dataclass(frozen=True)
class Chain:
    """The parts of a policy or codec: with arguments exactly these, without ones any; "any-crop" is either crop."""

    parts: tuple[str, ...]

    def admits(self, value):
        parts = str(value).replace("/", "|").split("|")
        return len(parts) == len(self.parts) and all(map(self._is, parts, self.parts))

    @staticmethod
    def _is(part, wanted):
        name = part.partition("(")[0]
        if wanted == "any-crop":
            return name in ("crop", "resizedcrop")
        return part == wanted if "(" in wanted else name == wanted


@dataclass(frozen=True)
class Has:
    """A chain with this part in it, whatever else."""

    part: str

    def admits(self, value):
        return self.part in str(value).split("|")


def with_all(arms, **settings):
    """Return arms with further settings each."""
    return {name: {**arm, **settings} for name, arm in arms.items()}


# --- What CSSL is in every experiment -------------------------------------------------------------------------------

CSSL = {
    "kind": "cssl",
    "momentum": 0.9,  # A:class_inc, A:core50, A:mt_stream
    "replay": 100,  # A:class_inc (CIFAR-100 and ImageNet), A:core50, A:mt_stream
    "evict": "largest-class",  # S:method, Replay Buffer
    "sample": "uniform",  # S:method, Model Updates
    "init": "random",  # S:experiments: CSSL performs no base initialisation
    "based": False,
}
PER_CLASS = {"rate": "linear(0.1, 0.001)", "weight_decay": 1e-5}  # A:class_inc, A:mt_stream
MIX = "mixup(0.1)/cutmix(0.8)"  # A:class_inc: α of 0.1 and 0.8; S:method: one or the other with equal probability
WEIGHTS = "IMAGENET1K_V1"  # S:core50, S:mt_stream, A:cc_analysis: ImageNet pre-trained parameters

REMIND = {
    "kind": "remind",
    "momentum": 0.9,  # A:class_inc, A:core50, A:mt_stream
    "codebooks": 32,  # spec 8: the official code's product quantiser, 32 codebooks of 256 centroids
    "centroids": 256,
    "evict": "largest-class",  # S:method: the policy of REMIND; spec 8
    "extra_params": False,
    "based": True,  # S:experiments: baselines use the first batch for base initialisation
}
PLAIN_REMIND = {**REMIND, **PER_CLASS, "crop": True, "mixup": 0.1}  # A:class_inc: crops, manifold Mixup; spec 8: 0.1
EXSTREAM = {"kind": "exstream", "rate": 2e-3, "based": True}  # A:class_inc, A:core50, A:mt_stream: Adam, 2e-3
SLDA = {"kind": "deep-slda", "covariance": "plastic", "shrinkage": 1e-4, "based": True}  # the same; spec 8: ε


def whole(name):
    """All of a data set."""
    return {"name": name, "classes": None, "per_class": None, "test_per_class": None}


# --- CIFAR-100, class by class: S:class_inc, A:class_inc ------------------------------------------------------------

# A:class_inc, Offline Training Details: SGD with momentum, from 0.1 along a cosine, 200 epochs, crops and flips.
OFFLINE_CIFAR = {"rate": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "drops": (), "augment": "crop|flip"}
CIFAR = {
    "data": whole("cifar100"),
    "stream": {"ordering": "class-incremental", "test_every": 20},  # A:class_inc, Data Details: batches of 20 classes
    "permutations": 3,  # S:class_inc: averaged over three different data orderings
    # A:class_inc, Baseline Details: the first batch, 50 epochs, the settings of the offline models.
    "base": {"classes": 20, "epochs": 50, **OFFLINE_CIFAR},
    "offline": {"enabled": True, "epochs": 200, **OFFLINE_CIFAR},
}
NET_32 = {"model": "resnet18-cifar", "size": 32, "normalize": "cifar100", "classes": 100}  # S:class_inc; spec 4
CROPS_32 = "crop|flip"
FULL_32 = f"crop|flip|autoaugment(cifar10)|{MIX}"  # S:method; A:class_inc: the CIFAR policy
CODEC_32 = "resize(0.66)|quantize(6)"  # S:class_inc: 6 bits, 66% of the area
CSSL_32 = {**CSSL, **PER_CLASS, **NET_32, "augment": FULL_32, "codec": CODEC_32, "storage": "memory"}
FIRST_20 = {"init": "base", "based": True}  # S:class_inc, A:class_inc, CSSL Details: pre-trained on the first 20
RAW = {"codec": "raw"}
WHOLE_RAW = {**RAW, "holds": 50_000}
# A:class_inc, Baseline Details: 100 replayed, the full data set stored (S:class_inc).
REMIND_32 = {**PLAIN_REMIND, **NET_32, "replay": 100, "capacity": None, "init": "base"}
# A:class_inc, Baseline Details: ImageNet weights, which are torchvision's network's, then base initialisation.
FROZEN_32 = {"model": "resnet18", "init": WEIGHTS, "classes": 100}
EXSTREAM_32, SLDA_32 = {**EXSTREAM, **FROZEN_32}, {**SLDA, **FROZEN_32}
# Spec 2: 30 Mb are 10K raw images, or 30·10⁶ bytes of compressed ones: 19,723 at 6 bit/66%; from 90 Mb on all fit.
CAPACITIES_32 = {
    "30 Mb": {"capacity": "30MB", "holds": 19_723},
    "60 Mb": {"capacity": "60MB", "holds": 39_447},
    "90-150 Mb": {"holds": 50_000},
}

CAPACITY = {
    **CIFAR,
    "arms": {
        **{f"CSSL, {name}": {**CSSL_32, **capacity} for name, capacity in CAPACITIES_32.items()},
        **{
            f"CSSL + pre-train, {name}": {**CSSL_32, **FIRST_20, **capacity}
            for name, capacity in CAPACITIES_32.items()
        },
        # A:class_inc, Baseline Details: 10K, 20K, ..., 50K exemplars, of 100 classes.
        **{f"ExStream, {30 * k} Mb": {**EXSTREAM_32, "per_class": 100 * k} for k in range(1, 6)},
        "Deep SLDA": SLDA_32,
        "REMIND": REMIND_32,
        "REMIND + extra params": {**REMIND_32, "extra_params": True},
    },
}

# A:cc_analysis: 30 Mb, and 150 Mb for all of CIFAR-100; "No Aug." is crops and flips. Pre-trained is ImageNet's
# weights here; that makes it torchvision's network, and what comes into it is not said.
CSSL_WEIGHTS = {
    **{key: value for key, value in CSSL_32.items() if key not in ("size", "normalize")},
    **{"init": WEIGHTS, "model": "resnet18"},
}
CALIBRATION_32 = {
    **CIFAR,
    "arms": {
        "ExStream": EXSTREAM_32,
        "Deep SLDA": SLDA_32,
        "REMIND": REMIND_32,
        "CSSL + pre-train, 30 Mb": {**CSSL_WEIGHTS, "holds": 19_723},
        "CSSL + pre-train, 150 Mb": {**CSSL_WEIGHTS, "holds": 50_000},
        "CSSL + pre-train, no aug., 150 Mb": {**CSSL_WEIGHTS, "holds": 50_000, "augment": CROPS_32},
        "CSSL, 30 Mb": {**CSSL_32, "holds": 19_723},
        "CSSL, 150 Mb": {**CSSL_32, "holds": 50_000},
        "CSSL, no aug., 150 Mb": {**CSSL_32, "holds": 50_000, "augment": CROPS_32},
    },
}

# A:cc_analysis, fig:cc_cifar100: i.i.d., every test on all classes, 150 Mb; "measured more frequently" (S:ablations).
# Spec 10: outside tab:cc_cifar100 pre-training on CIFAR-100 is on the first 20 classes.
IID = {
    **{key: value for key, value in CIFAR.items() if key != "offline"},
    "stream": {"ordering": "iid", "test_every": None, "batches": AtLeast(6)},
    "arms": {
        "CSSL": {**CSSL_32, "holds": 50_000},
        "CSSL + pre-train": {**CSSL_32, **FIRST_20, "holds": 50_000},
        "CSSL, no aug.": {**CSSL_32, "holds": 50_000, "augment": CROPS_32},
        "REMIND": REMIND_32,
    },
}

# A:acc_track: after every new class; the full data set retained by all, no quantisation or resizing.
TRACK = {
    **CIFAR,
    "stream": {"ordering": "class-incremental", "test_every": 1},
    "arms": {
        "CSSL": {**CSSL_32, **WHOLE_RAW},
        "CSSL + pre-train": {**CSSL_32, **FIRST_20, **WHOLE_RAW},
        "ExStream": {**EXSTREAM_32, "per_class": AtLeast(500)},
        "Deep SLDA": SLDA_32,
        "REMIND": REMIND_32,
        "REMIND + extra params": {**REMIND_32, "extra_params": True},
    },
}

# A:data_aug: everything stored, uncompressed; three trials. α and strengths are those that did best, given for the
# final policy alone (A:class_inc).
_POLICIES = {
    "none": (),
    "MU": ("mixup",),
    "CM": ("cutmix",),
    "MU + CM": ("mixup", "cutmix"),
    "AA": ("autoaugment(cifar10)",),
    "MU + AA": ("autoaugment(cifar10)", "mixup"),
    "CM + AA": ("autoaugment(cifar10)", "cutmix"),
    "MU + RA": ("randaugment", "mixup"),
    "CM + RA": ("randaugment", "cutmix"),
    "MU + CM + RA": ("randaugment", "mixup", "cutmix"),
}
POLICIES = {
    **CIFAR,
    "arms": with_all(
        {
            **{name: {**CSSL_32, "augment": Chain(("crop", "flip", *parts))} for name, parts in _POLICIES.items()},
            "MU + CM + AA": CSSL_32,
        },
        **WHOLE_RAW,
    ),
}
_ALPHAS = (0.1, 0.4, 0.8, 1.0, 1.2)
_UNSAID = {key: value for key, value in CIFAR.items() if key != "permutations"}
GRID_OF_ALPHA = {
    **_UNSAID,
    "arms": with_all(
        {
            f"mixup {a}, cutmix {b}": {**CSSL_32, "augment": Chain(("crop", "flip", f"mixup({a})", f"cutmix({b})"))}
            for a in _ALPHAS
            for b in _ALPHAS
        },
        **WHOLE_RAW,
    ),
}
GRID_OF_RANDAUGMENT = {
    **_UNSAID,
    "arms": with_all(
        {
            f"{n} of magnitude {m}": {**CSSL_32, "augment": f"crop|flip|randaugment({n}, {m})"}
            for n in (1, 2)
            for m in (4, 9, 14)
        },
        **WHOLE_RAW,
    ),
}

# A:mem_eff: 30 Mb, three trials. Spec 2: raw lines are 10K examples per 30 Mb.
RAW_30 = {**CSSL_32, **RAW, "holds": 10_000}
COMPRESSION = {
    **CIFAR,
    "arms": {
        "8 bit, 100%": RAW_30,
        **{
            name: {**CSSL_32, "codec": codec, "capacity": "30MB"}
            for name, codec in {
                "6 bit, 100%": "quantize(6)",
                "4 bit, 100%": "quantize(4)",
                "8 bit, 66%": "resize(0.66)",
                "8 bit, 50%": "resize(0.5)",
                "6 bit, 66%": CODEC_32,
                "4 bit, 66%": "resize(0.66)|quantize(4)",
            }.items()
        },
    },
}

# A:smart_evict: 30 Mb; α the best of a set, which one is not said; a limit of two or three did not help.
CONSOLIDATION = {
    **CIFAR,
    "arms": {
        "Mixup": {**RAW_30, "evict": Begins("consolidate-mixup(")},
        "CutMix": {**RAW_30, "evict": Begins("consolidate-cutmix(")},
        "SamplePairing": {**RAW_30, "evict": "consolidate-samplepairing"},
        **{f"CutMix, at most {n} merges": {**RAW_30, "evict": Begins("consolidate-cutmix(")} for n in (2, 3)},
        "6 bit, 66%": {**CSSL_32, "capacity": "30MB", "holds": 19_723},
        "8 bit, 100%": RAW_30,  # plain eviction, as in T:compress
    },
}

# A:reservoir; spec 10: raw images.
EVICTION = {
    **CIFAR,
    "arms": {
        f"{name}, {megabytes} Mb": {**CSSL_32, **RAW, "evict": evict, "holds": 10_000 * megabytes // 30}
        for megabytes in (30, 60, 90, 120)
        for name, evict in (("random", "largest-class"), ("reservoir", "reservoir"))
    },
}

# A:perf_gap_details; spec 8 for the settings of the publications.
_GAP_REMIND = {**REMIND_32, "weight_decay": 5e-4}  # A:perf_gap_details: by grid search
GAP = {
    "data": whole("cifar100"),
    "stream": {"ordering": "class-incremental", "test_every": 20},
    "base": CIFAR["base"],
    "arms": with_all(
        {
            "iCaRL": {
                **{"kind": "icarl", "exemplars": None, "epochs": 70, "batch": 128, "rate": 2.0, "momentum": 0.9},
                "drops": (49 / 70, 63 / 70),  # as shares of the epochs; by 5
                "weight_decay": 2e-5,  # an L2 penalty of 1e-5 times the sum of squares
            },
            "E2EIL": {
                **{"kind": "e2eil", "exemplars": None, "temperature": 2, "momentum": 0.9},
                **{"epochs": 40, "rate": 0.1, "fine_epochs": 30, "fine_rate": 0.01},
            },
            "REMIND, fewer replayed": {**_GAP_REMIND, "replay": 50},  # fig:class_imb: 100 instead of 50
            "REMIND": {**_GAP_REMIND, "replay": 100},
            "offline": {"kind": "offline", "epochs": 200, **OFFLINE_CIFAR},
        },
        **NET_32,
    ),
}

# S:mot: ResNet18, pre-trained on ImageNet, fine-tuned on CIFAR10/100, different ratios frozen. No recipe is given.
_FREEZING = {"arms": {"*": {"kind": "offline", "model": "resnet18", "init": WEIGHTS}}}

# --- ImageNet: S:class_inc, A:class_inc -----------------------------------------------------------------------------

CROPS_224 = "resizedcrop|flip"  # spec 3
IMAGENET = {
    "data": whole("imagenet"),
    "stream": {"ordering": "class-incremental", "test_every": 100},  # A:class_inc, Data Details
    # A:class_inc, Baseline Details; spec 8: all three data sets have the recipe of CIFAR-100.
    "base": {"classes": 100, "epochs": 50, **OFFLINE_CIFAR, "augment": CROPS_224},
    "offline": {"enabled": True},  # A:class_inc: torchvision's public model, whose recipe is not given
}
NET_224 = {"model": "resnet18", "size": 224, "normalize": "imagenet", "zoom": 0.875}  # A:class_inc; spec 3
NET_1000 = {**NET_224, "classes": 1000}
FULL_224 = f"{CROPS_224}|autoaugment(imagenet)|{MIX}"  # A:class_inc: the ImageNet policy
CSSL_224 = {**CSSL, **PER_CLASS, **NET_1000, "augment": FULL_224}
# S:class_inc: in memory four bits and 75% of the area; on disk JPEG, nothing else.
MEMORY = {"codec": "resize(0.75)|quantize(4)", "storage": "memory"}
DISK = {"codec": Chain(("jpeg",)), "storage": "disk"}
FIRST_100 = {"init": "base", "based": True}  # A:class_inc, CSSL Details: pre-trained on the first 100 classes
REMIND_224 = {**PLAIN_REMIND, **NET_1000, "replay": 50, "init": "base"}  # A:class_inc: 50 on ImageNet
FROZEN_224 = {**NET_1000, "init": "base"}


def _imagenet_arms():
    arms = {"Deep SLDA": {**SLDA, **FROZEN_224}}
    # A:class_inc: 20 and 100 exemplars a class. S:class_inc: JPEG stores 100,000 and 500,000 images.
    for size, exemplars, images in (("1.5", 20, 100_000), ("8", 100, 500_000)):
        memory, disk = {**MEMORY, "capacity": f"{size}GB"}, {**DISK, "capacity": images}
        arms |= {
            f"ExStream, {size} Gb": {**EXSTREAM, **FROZEN_224, "per_class": exemplars},
            f"REMIND, {size} Gb": {**REMIND_224, "capacity": f"{size}GB"},
            f"REMIND + extra params, {size} Gb": {**REMIND_224, "capacity": f"{size}GB", "extra_params": True},
            f"CSSL, {size} Gb": {**CSSL_224, **memory},
            f"CSSL + pre-train, {size} Gb": {**CSSL_224, **memory, **FIRST_100},
            f"CSSL + JPEG, {size} Gb": {**CSSL_224, **disk},
            f"CSSL + pre-train + JPEG, {size} Gb": {**CSSL_224, **disk, **FIRST_100},
        }
    # S:class_inc, "What's possible with more memory?": unlimited; in what form is not said.
    arms["CSSL + pre-train, unlimited"] = {**CSSL_224, **FIRST_100, "capacity": None}
    # A:mem_eff: four bits are better than six on ImageNet, given a fixed capacity; which one is not said.
    arms["CSSL, 6 bit, 8 Gb"] = {**CSSL_224, "codec": Has("quantize(6)")}
    return arms


_NETWORKS = {
    "ResNet101": "resnet101",
    "MobileNetV2": "mobilenet_v2",
    "DenseNet121": "densenet121",
    "Wide ResNet50-2": "wide_resnet50_2",
}
# A:diff_arch: JPEG on disk, 1.5 Gb.
NETWORKS = {
    **IMAGENET,
    "arms": {name: {**CSSL_224, **DISK, "capacity": 100_000, "model": model} for name, model in _NETWORKS.items()},
}
# A:cc_analysis, ImageNet: 1.5 Gb of JPEG files on disk.
CALIBRATION_224 = {
    **IMAGENET,
    "arms": {
        "REMIND": REMIND_224,
        "CSSL": {**CSSL_224, **DISK, "capacity": 100_000},
        "CSSL, no aug.": {**CSSL_224, **DISK, "capacity": 100_000, "augment": CROPS_224},
    },
}

# --- CORe50: S:core50, A:core50 -------------------------------------------------------------------------------------

ORDERINGS = {"ID": "iid", "CID": "class-iid", "I": "instance", "CI": "class-instance"}
_STEPS = {"epochs": 40, "rate": 0.01, "momentum": 0.9, "weight_decay": 1e-4, "drops": (15, 30)}  # A:core50, Offline
# A:core50: a fixed rate, for REMIND and CSSL alike. Spec 2 and 6: crops of 128 x 128.
CONSTANT = {"rate": "constant(0.01)", "weight_decay": 1e-4}
NET_128 = {"model": "resnet18", "size": 128, "classes": 10}


def _core50(order, pre):
    begin = {"init": WEIGHTS} if pre else {}  # S:core50
    based = {"init": WEIGHTS if pre else "base"}
    full = Chain(("any-crop", "flip", "autoaugment(imagenet)", "mixup(0.1)", "cutmix(0.8)"))  # A:core50, CSSL Details
    cssl = {**CSSL, **CONSTANT, **NET_128, **begin, "augment": full}
    # A:core50: 20 samples; no augmentation in any baseline. S:core50: baselines have unlimited capacity.
    remind = {**REMIND, **CONSTANT, **NET_128, **based, "replay": 20, "crop": False, "mixup": None, "capacity": None}
    return {
        "data": whole("core50"),
        "stream": {"ordering": order},
        "permutations": 10,
        # A:core50: the first batch (spec 6: a fifth), the offline hyperparameters; no augmentation in baselines.
        "base": {"classes": None, **_STEPS, "augment": "none"},
        # S:core50: random crops and flips for offline models.
        "offline": {"enabled": True, **_STEPS, "augment": Chain(("any-crop", "flip"))},
        "arms": {
            # A:core50: the memory buffer may store the full data set, 600 images per class.
            "ExStream": {**EXSTREAM, **NET_128, **based, "per_class": AtLeast(600)},
            "Deep SLDA": {**SLDA, **NET_128, **based},
            "REMIND": remind,
            "REMIND + extra params": {**remind, "extra_params": True},
            # A:core50, CSSL Details, which the spec prefers to S:core50. Spec 2: 5,410 images in 100 Mb.
            "CSSL, 100 Mb": {
                **cssl,
                **{"codec": "resize(0.75)|quantize(4)", "capacity": "100MB", "holds": 5_410},
            },
            "CSSL, 200 Mb": {**cssl, "codec": "quantize(4)", "capacity": "200MB", "holds": 6_000},
            "CSSL, 300 Mb": {**cssl, "codec": "raw", "capacity": "300MB", "holds": 6_000},
        },
    }


# --- Several tasks: S:mt_stream, A:mt_stream, A:mt_stream_strat -----------------------------------------------------

TASKS = [
    ("MIT Scenes", "mit-scenes"),
    ("CUB-200", "cub200"),
    ("Flowers", "flowers102"),
    ("FGVC", "fgvc-aircraft"),
]
"""In the order of A:mt_stream and the spec; S:mt_stream has another."""

MULTITASK = {
    "tasks": [(task, whole(name)) for task, name in TASKS],
    "stream": {"ordering": "class-incremental", "test_every": None},  # A:mt_stream: tested after each data set only
    "permutations": 3,
    # A:mt_stream: the first 34 classes of MIT Scenes, 50 epochs; rate and decay by spec 8.
    "base": {"classes": 34, "epochs": 50, **OFFLINE_CIFAR, "augment": CROPS_224},
    # A:mt_stream: the best of three rates, along a cosine; training augmentation as on ImageNet.
    "offline": {
        **{"enabled": True, "epochs": 50, "rates": [0.1, 0.01, 0.001], "momentum": 0.9, "drops": ()},
        "augment": CROPS_224,
    },
}
CSSL_TASKS = {
    **{**CSSL, **PER_CLASS, **NET_224, "augment": FULL_224, "capacity": None},  # S:mt_stream: unlimited for all
    "strategy": "full+separate",  # S:mt_stream; spec 9
}


def _multitask(pre):
    begin = {"init": WEIGHTS} if pre else {}
    based = {"init": WEIGHTS if pre else "base"}
    return {
        **MULTITASK,
        "arms": {
            # Unlimited: no class has more than MIT Scenes' 80 images.
            "ExStream": {**EXSTREAM, **NET_224, **based, "per_class": AtLeast(80)},
            "Deep SLDA": {**SLDA, **NET_224, **based},
            # A:mt_stream: 50 samples, a batch of replayed data from each of the seen tasks.
            "REMIND": {
                **PLAIN_REMIND,
                **NET_224,
                **based,
                "replay": 50,
                "capacity": None,
                "strategy": "full+separate",
            },
            # Spec 10: CSSL sees no target data before streaming.
            "CSSL": {**CSSL_TASKS, **begin},
            # A:mt_stream says that CSSL is fine-tuned on the first 34 classes in all experiments.
            "CSSL + base init": {**CSSL_TASKS, **based, "based": True},
        },
    }


# A:mt_stream_strat: B = 100, ImageNet's weights, no fine-tuning on MIT Scenes.
STRATEGIES = {
    **MULTITASK,
    "arms": {
        name: {**CSSL_TASKS, "init": WEIGHTS, "strategy": name}
        for name in ("full+separate", "split+separate", "full+sum", "split+sum")
    },
}

EXPERIMENTS = {
    "fig:layer_freeze": {
        "CIFAR10": {"data": whole("cifar10"), **_FREEZING},
        "CIFAR100": {"data": whole("cifar100"), **_FREEZING},
    },
    "tab:pretrn_class": {
        f"{classes} classes": {
            **{**IMAGENET, "base": {**IMAGENET["base"], "classes": classes}},
            "arms": {"REMIND": REMIND_224},
        }
        for classes in (10, 50, 100)
    },
    "fig:cifar100_cssl": {"CIFAR100": CAPACITY},
    "T:imagenet_cssl": {"ImageNet": {**IMAGENET, "arms": _imagenet_arms()}},
    "T:core50": {
        **{name: _core50(order, False) for name, order in ORDERINGS.items()},
        **{f"{name}, pre-trained": _core50(order, True) for name, order in ORDERINGS.items()},
    },
    "tab:mt_stream": {"pre-trained": _multitask(True), "cold": _multitask(False)},
    "tab:cc_cifar100": {"CIFAR100": CALIBRATION_32, "ImageNet": CALIBRATION_224},
    "fig:cc_cifar100": {"iid": IID},
    "fig:cifar_acc_track": {"CIFAR100": TRACK},
    "T:diff_arch": {"ImageNet": NETWORKS},
    "T:data_aug": {
        "policies": POLICIES,
        "grid of α": GRID_OF_ALPHA,
        "grid of RandAugment": GRID_OF_RANDAUGMENT,
    },
    "T:compress": {"CIFAR100": COMPRESSION},
    "T:smart_evict": {"CIFAR100": CONSOLIDATION},
    "T:reservoir": {"CIFAR100": EVICTION},
    "tab:mt_stream_strat": {"pre-trained": STRATEGIES},
    "fig:perf_gap": {"CIFAR100": GAP},
}

# --- The paper's results --------------------------------------------------------------------------------------------

# A:class_inc, A:core50 and A:acc_track name one offline accuracy to divide by (78.61% on CIFAR-100, 89.09% top-5 on
# ImageNet, 43.91% on CORe50): Ω of one final offline model (spec 7).
TOP1, TOP5, ECE = "omega_final", "top5_omega_final", "average_ece"


def _of(part, metric, **values):
    return {
        (part, name, metric): value if isinstance(value, tuple) else (value, None) for name, value in values.items()
    }


def _tasks(part, name, *values):
    pairs = [value if isinstance(value, tuple) else (value, None) for value in values]
    return {
        (part, name, f"accuracy of {task}"): (mean, sd) for (task, _), (mean, sd) in zip(TASKS, pairs, strict=True)
    }


def _core50_numbers():
    # T:core50: ID, CID, I, CI without pre-training, then with.
    lines = """
        ExStream              0.719 0.635 0.734 0.627  0.959 0.936 0.954 0.935
        Deep SLDA             0.721 0.660 0.730 0.626  0.971 0.952 0.962 0.957
        REMIND                0.719 0.628 0.741 0.600  0.985 0.971 0.986 0.973
        REMIND + extra params 0.636 0.586 0.693 0.594  0.994 0.961 0.996 0.966
        CSSL, 100 Mb          1.106 0.977 1.071 0.990  0.963 0.979 0.962 0.976
        CSSL, 200 Mb          1.107 1.005 1.104 0.995  0.968 0.981 0.977 0.976
        CSSL, 300 Mb          1.153 1.009 1.112 1.024  0.976 0.986 0.974 0.979
    """
    parts = [order + suffix for suffix in ("", ", pre-trained") for order in ("ID", "CID", "I", "CI")]
    numbers = {}
    for line in lines.strip().splitlines():
        *name, a, b, c, d, e, f, g, h = line.split()
        numbers |= {
            (part, " ".join(name), TOP1): (float(value), None)
            for part, value in zip(parts, (a, b, c, d, e, f, g, h), strict=True)
        }
    return numbers


NUMBERS = {
    "fig:layer_freeze": {},
    "tab:pretrn_class": {
        **_of("10 classes", TOP1, REMIND=0.478),
        **_of("10 classes", TOP5, REMIND=0.651),
        **_of("50 classes", TOP1, REMIND=0.727),
        **_of("50 classes", TOP5, REMIND=0.848),
        **_of("100 classes", TOP1, REMIND=0.835),
        **_of("100 classes", TOP5, REMIND=0.856),
    },
    # S:class_inc, Discussion: REMIND + Extra Params 0.790, which cold CSSL at the lowest capacity exceeds by 3.6%
    # absolute; up to 0.974 pre-trained.
    "fig:cifar100_cssl": _of(
        "CIFAR100",
        TOP1,
        **{"CSSL, 30 Mb": 0.826, "REMIND + extra params": 0.790, "CSSL + pre-train, 90-150 Mb": 0.974},
    ),
    "T:imagenet_cssl": _of(
        "ImageNet",
        TOP5,
        **{
            "ExStream, 1.5 Gb": 0.569,
            "ExStream, 8 Gb": 0.594,
            "Deep SLDA": 0.752,
            "REMIND, 1.5 Gb": 0.855,
            "REMIND, 8 Gb": 0.856,
            "REMIND + extra params, 1.5 Gb": 0.869,
            "REMIND + extra params, 8 Gb": 0.873,
            "CSSL, 1.5 Gb": 0.740,
            "CSSL, 8 Gb": 0.873,
            "CSSL + pre-train, 1.5 Gb": 0.750,
            "CSSL + pre-train, 8 Gb": 0.903,
            "CSSL + JPEG, 1.5 Gb": 0.899,
            "CSSL + JPEG, 8 Gb": 0.951,
            "CSSL + pre-train + JPEG, 1.5 Gb": 0.909,
            "CSSL + pre-train + JPEG, 8 Gb": 0.964,
            "CSSL + pre-train, unlimited": 0.975,  # in the text
        },
    ),
    "T:core50": _core50_numbers(),
    "tab:mt_stream": {
        **_tasks("pre-trained", "offline", (71.42, 0.60), (73.70, 0.01), (91.98, 0.02), (76.05, 0.17)),
        **_tasks("pre-trained", "ExStream", (58.96, 0.70), (26.04, 0.46), (69.16, 0.27), (33.33, 0.56)),
        **_tasks("pre-trained", "Deep SLDA", (60.05, 0.35), (29.85, 0.04), (72.56, 0.13), (34.16, 0.20)),
        **_tasks("pre-trained", "REMIND", (54.23, 0.58), (46.27, 1.01), (78.06, 1.47), (36.56, 3.24)),
        **_tasks("pre-trained", "CSSL", (54.30, 1.95), (59.94, 0.97), (88.36, 0.98), (45.29, 2.11)),
        **_tasks("cold", "offline", (51.60, 0.56), (46.95, 0.25), (83.10, 0.57), (60.12, 0.44)),
        **_tasks("cold", "ExStream", (31.84, 0.34), (9.37, 0.08), (40.31, 0.15), (16.58, 0.20)),
        **_tasks("cold", "Deep SLDA", (35.05, 0.19), (11.30, 0.10), (44.04, 0.09), (16.89, 0.06)),
        **_tasks("cold", "REMIND", (28.56, 0.71), (17.97, 0.41), (43.97, 1.29), (16.53, 0.68)),
        **_tasks("cold", "CSSL", (42.49, 0.73), (40.08, 0.45), (78.70, 0.45), (25.98, 2.30)),
    },
    "tab:cc_cifar100": {
        **_of(
            "CIFAR100",
            ECE,
            **{
                "ExStream": (0.301, 0.008),
                "Deep SLDA": (0.296, 0.012),
                "REMIND": (0.023, 0.000),
                "CSSL + pre-train, 30 Mb": (0.031, 0.005),
                "CSSL + pre-train, 150 Mb": (0.023, 0.003),
                "CSSL + pre-train, no aug., 150 Mb": (0.161, 0.031),
                "CSSL, 30 Mb": (0.040, 0.001),
                "CSSL, 150 Mb": (0.036, 0.002),
                "CSSL, no aug., 150 Mb": (0.149, 0.015),
            },
        ),
        **_of("ImageNet", ECE, **{"REMIND": (0.021, 0.005), "CSSL": (0.043, 0.003), "CSSL, no aug.": (0.266, 0.009)}),
    },
    "fig:cc_cifar100": {},
    "fig:cifar_acc_track": {},
    "T:diff_arch": _of(
        "ImageNet",
        TOP5,
        **{"ResNet101": 0.872, "MobileNetV2": 0.904, "DenseNet121": 0.898, "Wide ResNet50-2": 0.880},
    ),
    "T:data_aug": _of(
        "policies",
        TOP1,
        **{
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
        },
    ),
    "T:compress": _of(
        "CIFAR100",
        TOP1,
        **{
            "8 bit, 100%": (0.810, 0.009),
            "6 bit, 100%": (0.822, 0.014),
            "4 bit, 100%": (0.813, 0.025),
            "8 bit, 66%": (0.819, 0.001),
            "8 bit, 50%": (0.764, 0.029),
            "6 bit, 66%": (0.826, 0.002),
            "4 bit, 66%": (0.715, 0.038),
        },
    ),
    "T:smart_evict": _of(
        "CIFAR100",
        TOP1,
        **{
            "Mixup": (0.746, 0.019),
            "CutMix": (0.778, 0.014),
            "SamplePairing": (0.735, 0.023),
            # Beside them, from T:compress, what A:smart_evict compares with, and plain eviction of raw images.
            "6 bit, 66%": (0.826, 0.002),
            "8 bit, 100%": (0.810, 0.009),
        },
    ),
    "T:reservoir": _of(
        "CIFAR100",
        TOP1,
        **{
            "random, 30 Mb": (0.810, 0.019),
            "reservoir, 30 Mb": (0.709, 0.099),
            "random, 60 Mb": (0.855, 0.011),
            "reservoir, 60 Mb": (0.764, 0.010),
            "random, 90 Mb": (0.889, 0.024),
            "reservoir, 90 Mb": (0.795, 0.004),
            "random, 120 Mb": (0.874, 0.009),
            "reservoir, 120 Mb": (0.830, 0.001),
        },
    ),
    "tab:mt_stream_strat": {
        **_tasks("pre-trained", "full+separate", 56.11, 60.79, 88.08, 45.22),
        **_tasks("pre-trained", "split+separate", 53.13, 57.232, 84.50, 36.78),
        **_tasks("pre-trained", "full+sum", 54.40, 62.12, 84.39, 49.09),
        **_tasks("pre-trained", "split+sum", 54.48, 60.32, 86.57, 43.05),
        **_of(
            "pre-trained",
            "final_accuracy",
            **{"full+separate": 62.55, "split+separate": 57.91, "full+sum": 62.50, "split+sum": 61.11},
        ),
    },
    "fig:perf_gap": _of("CIFAR100", "final_accuracy", offline=78.61),  # what the appendix divides by
}
"""By experiment: (part, arm, metric) -> (mean, standard deviation or None); accuracies in %."""

# T:cssl_timing: milliseconds for PQ encoding, forward pass, backward pass, update.
TIMING = {
    "CSSL": (None, (3.67, 0.45), (5.41, 0.97), (1.53, 0.06)),
    "REMIND": ((23.37, 1.13), (2.65, 0.02), (1.62, 0.03), (0.52, 0.01)),
    "REMIND + extra params": ((23.37, 1.13), (2.95, 0.12), (1.84, 0.09), (0.69, 0.04)),
}

# T:mt_datasets: classes, training examples, testing examples.
MT_DATASETS = {
    "cub200": (200, 5994, 5794),
    "flowers102": (102, 2040, 6149),
    "mit-scenes": (67, 5360, 1340),
    "fgvc-aircraft": (100, 6667, 3333),
}

# T:diff_arch_top5, in %.
OFFLINE_TOP5 = {"ResNet101": 93.54, "MobileNetV2": 90.29, "DenseNet121": 91.98, "Wide ResNet50-2": 94.09}
