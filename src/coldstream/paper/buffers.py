"""What is kept, in how many bits, and what leaves a full buffer: the paper's appendices B.2, B.3 and B.4."""

from __future__ import annotations

from coldstream.paper.catalog import Claim, PaperExperiment, Setting, Settings, each_better
from coldstream.paper.common import CODEC, DESK, SHORT, cssl, short


def _compression(setting: Setting) -> dict[str, Settings]:
    capacity = setting.bytes("30MB", 0.2)
    raw = {"codec": "raw", "capacity": setting.examples(0.2)}
    arms = {"8 bit, 100%": cssl(setting, **raw)}
    for bits, ratio in ((6, 1), (4, 1), (8, 0.66), (8, 0.5), (6, 0.66), (4, 0.66)):
        chain = [f"resize({ratio})"] * (ratio < 1) + [f"quantize({bits})"] * (bits < 8)
        arms[f"{bits} bit, {ratio:.0%}"] = cssl(setting, codec="|".join(chain), capacity=capacity)
    return {"CIFAR100": setting.experiment(arms)}


_COMPRESSED = {
    "8 bit, 100%": (0.810, 0.009),
    "6 bit, 100%": (0.822, 0.014),
    "4 bit, 100%": (0.813, 0.025),
    "8 bit, 66%": (0.819, 0.001),
    "8 bit, 50%": (0.764, 0.029),
    "6 bit, 66%": (0.826, 0.002),
    "4 bit, 66%": (0.715, 0.038),
}

COMPRESSION = PaperExperiment(
    name="T:compress",
    title="Compression at the smallest buffer",
    varies="bits per pixel, and the area to which images are resized before they are stored",
    fixed="class-incremental CIFAR-100, the bytes of a fifth of the raw images, network, replay, rates",
    setting=short,
    parts=_compression,
    metrics=("omega_per_event", "omega_final", "final_accuracy"),
    numbers={("CIFAR100", name, "omega_final"): number for name, number in _COMPRESSED.items()},
    claims=(
        Claim(
            "6 bits and 66% are the best of the seven",
            each_better("CIFAR100", "6 bit, 66%", [name for name in _COMPRESSED if name != "6 bit, 66%"]),
        ),
        Claim("6 bits and 66% are better than raw images", each_better("CIFAR100", "6 bit, 66%", "8 bit, 100%")),
        Claim("4 bits are better than raw images", each_better("CIFAR100", "4 bit, 100%", "8 bit, 100%")),
        Claim("4 bits and 66% are too much", each_better("CIFAR100", ["8 bit, 100%", "6 bit, 66%"], "4 bit, 66%")),
        Claim("Resizing to 50% is too much", each_better("CIFAR100", ["8 bit, 100%", "8 bit, 66%"], "8 bit, 50%")),
    ),
    about={"lab": SHORT, "desk": DESK},
)


def _consolidation(setting: Setting) -> dict[str, Settings]:
    raw = {"codec": "raw", "capacity": setting.examples(0.2)}
    arms = {
        "Mixup": cssl(setting, **raw, evict="consolidate-mixup(1.0)"),
        "CutMix": cssl(setting, **raw, evict="consolidate-cutmix(1.0)"),
        "SamplePairing": cssl(setting, **raw, evict="consolidate-samplepairing"),
        "CutMix, at most 2 merges": cssl(setting, **raw, evict="consolidate-cutmix(1.0, limit=2)"),
        "CutMix, at most 3 merges": cssl(setting, **raw, evict="consolidate-cutmix(1.0, limit=3)"),
        "6 bit, 66%": cssl(setting, codec=CODEC, capacity=setting.bytes("30MB", 0.2)),
        "8 bit, 100%": cssl(setting, **raw),
    }
    return {"CIFAR100": setting.experiment(arms)}


CONSOLIDATION = PaperExperiment(
    name="T:smart_evict",
    title="Merging two stored examples instead of dropping one",
    varies="how two examples become one when the buffer is full; beside it compression, and dropping raw images",
    fixed="class-incremental CIFAR-100, a buffer of a fifth of the raw images, network, replay, rates",
    setting=short,
    parts=_consolidation,
    metrics=("omega_per_event", "omega_final", "final_accuracy"),
    numbers={
        ("CIFAR100", "Mixup", "omega_final"): (0.746, 0.019),
        ("CIFAR100", "CutMix", "omega_final"): (0.778, 0.014),
        ("CIFAR100", "SamplePairing", "omega_final"): (0.735, 0.023),
        ("CIFAR100", "6 bit, 66%", "omega_final"): (0.826, 0.002),
        ("CIFAR100", "8 bit, 100%", "omega_final"): (0.810, 0.009),
    },
    claims=(
        Claim(
            "Merging is worse than compressing",
            each_better("CIFAR100", "6 bit, 66%", ["Mixup", "CutMix", "SamplePairing"]),
        ),
        Claim(
            "Merging is worse than compressing also with a limit of 2 or 3 merges",
            each_better("CIFAR100", "6 bit, 66%", ["CutMix, at most 2 merges", "CutMix, at most 3 merges"]),
        ),
    ),
    about={
        "lab": SHORT + " α is 1.0; the paper gives its best of {0.1, 0.4, 0.8, 1.0, 1.2} without saying which.",
        "desk": DESK + " α is 1.0.",
    },
)


def _eviction(setting: Setting) -> dict[str, Settings]:
    arms = {}
    sizes = ((30, 0.2), (60, 0.4), (90, 0.6), (120, 0.8))
    for megabytes, share in sizes[:1] if setting.desk else sizes:
        raw = {"codec": "raw", "capacity": setting.examples(share)}
        arms[f"random, {megabytes} Mb"] = cssl(setting, **raw)
        arms[f"reservoir, {megabytes} Mb"] = cssl(setting, **raw, evict="reservoir")
    return {"CIFAR100": setting.experiment(arms)}


EVICTION = PaperExperiment(
    name="T:reservoir",
    title="Eviction: a random member of the largest class, or a reservoir",
    varies="which example leaves a full buffer, and the capacity",
    fixed="class-incremental CIFAR-100, raw images, network, replay, rates",
    setting=short,
    parts=_eviction,
    metrics=("omega_per_event", "omega_final", "final_accuracy"),
    numbers={
        ("CIFAR100", name, "omega_final"): number
        for name, number in {
            "random, 30 Mb": (0.810, 0.019),
            "reservoir, 30 Mb": (0.709, 0.099),
            "random, 60 Mb": (0.855, 0.011),
            "reservoir, 60 Mb": (0.764, 0.010),
            "random, 90 Mb": (0.889, 0.024),
            "reservoir, 90 Mb": (0.795, 0.004),
            "random, 120 Mb": (0.874, 0.009),
            "reservoir, 120 Mb": (0.830, 0.001),
        }.items()
    },
    claims=(
        Claim(
            "Random eviction is better than a reservoir at every capacity",
            tuple(
                c
                for mb in (30, 60, 90, 120)
                for c in each_better("CIFAR100", f"random, {mb} Mb", f"reservoir, {mb} Mb")
            ),
        ),
    ),
    about={
        "lab": SHORT + " Mb are shares of the stream: 30 Mb a fifth of its images, 120 Mb four fifths.",
        "desk": DESK,
    },
)
