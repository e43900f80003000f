"""The catalog of the paper held against the paper, and what makes verdicts and tables of results."""

import math
import re
import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from coldstream.data import DATASETS, Dataset
from coldstream.lab import config, learners, reading
from coldstream.lab.records import Confusion
from coldstream.models import MODELS
from coldstream.paper import EXPERIMENTS, get_experiment, pages, results, runs_named
from coldstream.paper.catalog import Claim, Comparison, Figure, PaperExperiment, Setting
from coldstream.paper.central import CENTRAL
from coldstream.paper.verdicts import judge, judge_claim
from coldstream.report.kept import KeptEvent, KeptPart, KeptResults, KeptRun, keep
from coldstream.streams import make_stream
from finished_runs import ENVIRONMENT, event, unit, write

PAPER = runpy.run_path(str(Path(__file__).with_name("paper_settings.py")))
SETTINGS, NUMBERS = PAPER["EXPERIMENTS"], PAPER["NUMBERS"]
PARTS = [(experiment, part) for experiment, parts in SETTINGS.items() for part in parts]
SECTIONS = {
    "data": config.DataConfig,
    "stream": config.StreamConfig,
    "base": config.BaseConfig,
    "offline": config.OfflineConfig,
}


@cache
def configs(experiment, scale="paper"):
    return EXPERIMENTS[experiment].configs(scale)


def section(tree, name):
    """A section with its defaults; those of the tree may be ones that the config does not know yet."""
    defaults = {key: field.default for key, field in SECTIONS[name].model_fields.items()}
    return {**defaults, **tree.get(name, {})}


def arm(tree, name):
    """A learner's settings as an experiment resolves them: defaults, what all have in common, what it has beside."""
    settings = tree["learners"][name]
    return {**learners.all_settings(learners.learner_class(settings["kind"])), **tree["learner"], **settings}


def differences(wanted, given):
    """What is other than wanted, a line each."""
    return [
        f"{key}: the paper has {value!r}, the catalog {given.get(key, 'nothing')!r}"
        for key, value in wanted.items()
        if not (value.admits(given.get(key)) if hasattr(value, "admits") else _same(value, given.get(key, "nothing")))
    ]


def _same(one, other):
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


# The helpers above must be able to say no.


@pytest.mark.parametrize(
    ("wanted", "given", "equal"),
    [
        (1e-5, 1e-5, True),
        (1e-5, 1e-4, False),
        ((15, 30), [15, 30], True),
        ((15, 30), (15,), False),
        (None, "nothing", False),
        (PAPER["AtLeast"](80), 80, True),
        (PAPER["AtLeast"](80), 79, False),
        (PAPER["Chain"](("any-crop", "mixup(0.1)")), "resizedcrop|mixup(0.1)", True),
        (PAPER["Chain"](("crop", "mixup(0.1)")), "resizedcrop|mixup(0.1)", False),
        (PAPER["Chain"](("crop", "mixup(0.1)")), "crop|mixup(0.4)", False),
        (PAPER["Chain"](("crop", "mixup", "cutmix")), "crop|mixup(0.4)/cutmix(1)", True),
        (PAPER["Chain"](("crop", "mixup")), "crop|mixup(0.4)/cutmix(1)", False),
        (PAPER["Has"]("quantize(6)"), "resize(0.75)|quantize(6)", True),
        (PAPER["Has"]("quantize(6)"), "quantize(4)", False),
        (PAPER["Begins"]("consolidate-mixup("), "consolidate-cutmix(1.0)", False),
    ],
)
def test_comparing(wanted, given, equal):
    assert (differences({"x": wanted}, {"x": given}) == []) == equal


# Names.


SPEC_NAMES = [*SETTINGS, "T:cssl_timing"]


@pytest.mark.parametrize("name", SPEC_NAMES)
def test_the_catalog_has_every_table_and_figure(name):
    assert get_experiment(name) is get_experiment(name.replace(":", "-"))
    assert get_experiment(name).name == name


def test_the_confusion_matrices_belong_to_the_gap():
    assert any("fig:class_imb" in figure.title for figure in EXPERIMENTS["fig:perf_gap"].figures)


def test_experiments_are_told_apart():
    with pytest.raises(ValueError, match="T:compres"):
        get_experiment("T:compres")
    names = [
        tree["name"]
        for experiment in EXPERIMENTS
        for scale in EXPERIMENTS[experiment].scales
        for tree in configs(experiment, scale).values()
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("experiment", SETTINGS)
def test_parts_of_the_paper(experiment):
    assert set(configs(experiment)) == set(SETTINGS[experiment])


@pytest.mark.parametrize(("experiment", "part"), PARTS)
def test_arms_of_the_paper(experiment, part):
    wanted = set(SETTINGS[experiment][part]["arms"])
    assert wanted in ({"*"}, set(configs(experiment)[part]["learners"]))


STREAMED = [name for name, experiment in EXPERIMENTS.items() if experiment.measured is None]
DESK = [name for name, experiment in EXPERIMENTS.items() if "desk" in experiment.scales]


@pytest.mark.parametrize("name", DESK)
def test_a_run_at_desk_scale_is_of_one_learner(name):
    """Each learner of each part once, under a name of its own; a claim is about learners that there are."""
    experiment = EXPERIMENTS[name]
    parts, runs = experiment.configs("desk"), experiment.runs("desk")
    assert [(run.part, *run.learners) for run in runs] == [
        (part, arm) for part in parts for arm in parts[part]["learners"]
    ]
    assert len({run.tree["name"] for run in runs}) == len(runs)
    for run in runs:
        assert run.tree["learners"] == {run.learners[0]: parts[run.part]["learners"][run.learners[0]]}
        place = f"paper/{name}/{run.part}/{run.learners[0]}"
        assert runs_named(place, "desk") == {name: [run]}
        assert run.tree["data"] == {"name": "cifar100"}  # whole
    for claim in experiment.claims_at("desk"):
        assert claim.comparisons
        for part, arm in (ref for one in claim.comparisons for ref in (one.better, one.worse)):
            assert arm in parts[part]["learners"]


@pytest.mark.parametrize("name", STREAMED)
def test_a_learner_can_be_run_alone(name):
    """With the settings of its part, in a folder of its own."""
    experiment = EXPERIMENTS[name]
    parts, alone = experiment.configs("lab"), experiment.alone("lab")
    folders = [run.tree["name"] for run in (*experiment.runs("lab"), *alone)]
    assert len({*folders}) == len(folders)
    for run in alone:
        (arm,) = run.learners
        assert runs_named(f"paper/{name}/{run.part}/{arm}", "lab") == {name: [run]}
        assert results.addresses(run.tree)[arm] == results.addresses(parts[run.part])[arm]


def test_tables_share_runs_at_desk_scale():
    """What is the same in two tables is run once."""
    tables = ("fig:cifar100_cssl", "tab:cc_cifar100", "fig:cifar_acc_track")
    one, two, three = (EXPERIMENTS[name].configs("desk")["CIFAR100"] for name in tables)
    shared = {
        "REMIND": "REMIND",
        "Deep SLDA": "Deep SLDA",
        "CSSL, 90-150 Mb": "CSSL, 150 Mb",
        "CSSL, 30 Mb": "CSSL, 30 Mb",
    }
    for name, other in shared.items():
        assert one["learners"][name] == two["learners"][other]
    assert one["learners"]["CSSL, 90-150 Mb"] == three["learners"]["CSSL"]
    for key in ("data", "stream", "learner", "base", "offline"):
        assert one[key] == two[key] == three[key]


# Settings.


@pytest.mark.parametrize(("experiment", "part"), PARTS)
@pytest.mark.parametrize("name", SECTIONS)
def test_section(experiment, part, name):
    wanted = SETTINGS[experiment][part].get(name, {})
    assert differences(wanted, section(configs(experiment)[part], name)) == []


@pytest.mark.parametrize(("experiment", "part"), PARTS)
def test_permutations(experiment, part):
    wanted = SETTINGS[experiment][part].get("permutations")
    assert wanted is None or len(configs(experiment)[part]["seeds"]) == wanted


@pytest.mark.parametrize(("experiment", "part"), PARTS)
def test_tasks(experiment, part):
    wanted = SETTINGS[experiment][part].get("tasks", [])
    tasks = configs(experiment)[part].get("tasks", {})
    assert list(tasks) == [task for task, _ in wanted]
    for (_, one), other in zip(wanted, (section({"data": data}, "data") for data in tasks.values()), strict=True):
        assert differences(one, other) == []


ARMS = [
    (experiment, part, name, name if name in SETTINGS[experiment][part]["arms"] else "*")
    for experiment, part in PARTS
    for name in configs(experiment).get(part, {"learners": {}})["learners"]
    if {name, "*"} & SETTINGS[experiment][part]["arms"].keys()
]


@pytest.mark.parametrize(("experiment", "part", "name", "like"), ARMS)
def test_arm(experiment, part, name, like):
    tree = configs(experiment)[part]
    given = arm(tree, name)
    based = given["kind"] == "remind" or given.get("init") == "base" or given.get("base_init", False)
    given |= {"based": based, "holds": holds(tree, given), "codebooks": codebooks(given)}
    assert differences(SETTINGS[experiment][part]["arms"][like], given) == []


IMAGES = {"cifar100": 50_000, "core50": 6_000, "imagenet": 1_281_167}


def holds(tree, given):
    """How many images the buffer ends up with; None where a stored image has no fixed size."""
    if tree.get("data", {}).get("name") not in IMAGES or "codec" not in given or "jpeg" in given["codec"]:
        return None
    side, bits = given["size"], 8
    for name, value in re.findall(r"(resize|quantize)\(([\d.]+)\)", given["codec"]):
        side, bits = (round(side * float(value) ** 0.5), bits) if name == "resize" else (side, int(value))
    capacity = given["capacity"]
    if isinstance(capacity, str):
        number, unit = re.fullmatch(r"([\d.]+)(MB|GB)", capacity).groups()
        capacity = int(float(number) * {"MB": 10**6, "GB": 10**9}[unit] / (side * side * 3 * bits / 8))
    return min(IMAGES[tree["data"]["name"]], capacity or 10**9)


def codebooks(given):
    """Those of REMIND: without a number the 32 of the paper, if a map then takes less than half an image."""
    if given["kind"] != "remind" or given["codebooks"] is not None:
        return given.get("codebooks")
    positions = (given["size"] // 32) ** 2  # of torchvision's networks
    return 32 if 32 * positions < given["size"] ** 2 * 3 / 2 else None


@pytest.mark.parametrize(
    ("codec", "size", "capacity", "wanted"),
    [
        ("raw", 32, "30MB", 9_765),
        ("resize(0.66)|quantize(6)", 32, "30MB", 19_723),
        ("resize(0.75)|quantize(4)", 128, "100MB", 5_410),
        ("raw", 32, 10_000, 10_000),
        ("raw", 32, None, 50_000),
    ],
)
def test_what_a_buffer_holds(codec, size, capacity, wanted):
    """The checks of the specification."""
    data = "core50" if size == 128 else "cifar100"
    assert holds({"data": {"name": data}}, {"codec": codec, "size": size, "capacity": capacity}) == wanted


@pytest.mark.parametrize("part", SETTINGS["T:core50"])
def test_core50_comes_in_batches_of_1200(part):
    """Ten classes of five objects in eight sessions of 15 frames: class orders are tested on the classes seen."""
    labels, objects, sessions, frames = (values.ravel() for values in np.mgrid[:10, :5, :8, :15])
    images = np.arange(6000, dtype=np.uint16).view(np.uint8).reshape(6000, 1, 2, 1)
    clips = {"objects": labels * 5 + objects, "sessions": sessions, "frames": frames}
    data = Dataset("clips", images, labels, tuple(f"class {n}" for n in range(10)), **clips)
    stream = make_stream(data, seed=0, **configs("T:core50")[part]["stream"])
    assert stream.batches == (1200, 2400, 3600, 4800, 6000)
    assert [event.step for event in stream.events] == [1200, 2400, 3600, 4800, 6000]
    seen = [2, 4, 6, 8, 10] if part.startswith("C") else [10] * 5
    assert [len(event.classes) for event in stream.events] == seen


def test_frozen_shares_rise_from_nothing():
    for tree in configs("fig:layer_freeze").values():
        shares = [settings["freeze"] for settings in tree["learners"].values()]
        assert shares[0] == 0
        assert len(shares) > 2
        assert shares == sorted(set(shares))
        assert len({repr({**settings, "freeze": 0}) for settings in tree["learners"].values()}) == 1


@pytest.mark.parametrize("experiment", SETTINGS)
def test_names_that_the_paper_scale_uses(experiment):
    for tree in configs(experiment).values():
        names = {data["name"] for data in tree.get("tasks", {"": tree.get("data")}).values()}
        assert names <= DATASETS.keys()
        assert {arm(tree, name)["model"] for name in tree["learners"]} <= MODELS.keys()


@pytest.mark.parametrize("name", PAPER["MT_DATASETS"])
def test_data_sets_of_several_tasks(name):
    source = DATASETS[name]
    assert (source.classes, source.train, source.test) == PAPER["MT_DATASETS"][name]


def test_images_of_several_tasks():
    for experiment in ("tab:mt_stream", "tab:mt_stream_strat"):
        assert EXPERIMENTS[experiment].setting("paper").images == sum(
            train for _, train, _ in PAPER["MT_DATASETS"].values()
        )


# Numbers.


def numbers(experiment):
    """The catalog's numbers of an experiment; accuracies in %, as the paper has them."""
    return {
        key: tuple(None if value is None else 100 * value for value in pair) if "accuracy" in key[2] else pair
        for key, pair in EXPERIMENTS[experiment].numbers.items()
    }


def plain(printed):
    """Without which offline accuracy an Ω is a share of."""
    return {
        (part, name, re.sub("_(final|per_event)$", "", metric)): pair
        for (part, name, metric), pair in printed.items()
    }


@pytest.mark.parametrize("experiment", SETTINGS)
def test_numbers(experiment):
    wanted, given = plain(NUMBERS[experiment]), plain(numbers(experiment))
    assert given.keys() == wanted.keys()
    for key, (mean, sd) in wanted.items():
        assert given[key][0] == pytest.approx(mean, abs=1e-9), key
        assert given[key][1] == (None if sd is None else pytest.approx(sd, abs=1e-9)), key


@pytest.mark.parametrize("experiment", [experiment for experiment in SETTINGS if NUMBERS[experiment]])
def test_which_offline_accuracy_the_paper_divides_by(experiment):
    assert {metric for *_, metric in numbers(experiment)} == {metric for *_, metric in NUMBERS[experiment]}


@pytest.mark.parametrize("experiment", SETTINGS)
def test_numbers_are_of_arms_and_in_the_table(experiment):
    for part, name, metric in EXPERIMENTS[experiment].numbers:
        for scale in ("lab", "paper"):
            tree = configs(experiment, scale)[part]
            assert name in tree["learners"] or ("tasks" in tree and name == "offline")
        assert metric in EXPERIMENTS[experiment].metrics


def test_averages_over_tasks():
    """What the paper prints as averages are averages of its numbers."""
    printed = NUMBERS["tab:mt_stream_strat"]
    for name in SETTINGS["tab:mt_stream_strat"]["pre-trained"]["arms"]:
        each = [printed["pre-trained", name, f"accuracy of {task}"][0] for task, _ in PAPER["TASKS"]]
        assert sum(each) / 4 == pytest.approx(printed["pre-trained", name, "final_accuracy"][0], abs=0.006)


def test_timing():
    wanted = sorted(pair for times in PAPER["TIMING"].values() for pair in times if pair is not None)
    assert sorted(EXPERIMENTS["T:cssl_timing"].numbers.values()) == wanted


def test_offline_accuracies_of_architectures():
    note = (pages.NOTES / "T-diff_arch.md").read_text()
    assert all(f"{name} {value:.2f}%" in note for name, value in PAPER["OFFLINE_TOP5"].items())


# Claims.


OMEGAS = {f"{top}omega_{which}" for top in ("", "top5_") for which in ("per_event", "final")}
ALWAYS = {
    "forgetting",
    "frozen_share",
    "final_accuracy",
    "final_top5",
    "average_accuracy",
    "average_top5",
    "average_ece",
    "average_ece_debiased",
}
BIASES = {"bias_to_last_batch", "bias_to_last_class"}


def metrics_of(tree):
    """What a run of an experiment can be measured by."""
    if "tasks" in tree:
        return {"final_accuracy", *(f"accuracy of {task}" for task in tree["tasks"])}
    names = set(ALWAYS)
    if section(tree, "offline")["enabled"]:
        names |= {name for name in OMEGAS if name.endswith("final") or not section(tree, "offline")["last_only"]}
    # Classes that come one after another, with a test before the last ones.
    if section(tree, "stream")["ordering"] not in ("iid", "instance"):
        names |= BIASES
    return names


@pytest.mark.parametrize("experiment", STREAMED)
def test_claims_are_about_what_is_run(experiment):
    lab = configs(experiment, "lab")
    for claim in EXPERIMENTS[experiment].claims:
        assert claim.comparisons, claim.text
        for comparison in claim.comparisons:
            assert comparison.better != comparison.worse
            for part, name in (comparison.better, comparison.worse):
                assert name in lab[part]["learners"], (part, name)
                assert comparison.metric in metrics_of(lab[part]), comparison.metric


@pytest.mark.parametrize("experiment", STREAMED)
def test_metrics_are_those_of_every_part(experiment):
    for scale in EXPERIMENTS[experiment].scales:
        for tree in configs(experiment, scale).values():
            assert set(EXPERIMENTS[experiment].metrics) <= metrics_of(tree)


@pytest.mark.parametrize("experiment", SETTINGS)
def test_claims_are_true_of_the_paper(experiment):
    """A claim is the paper's: where it gives both numbers, they are in that order."""
    known = {key: pair[0] for key, pair in plain(NUMBERS[experiment]).items()}
    for claim in EXPERIMENTS[experiment].claims:
        for comparison in claim.comparisons:
            metric = re.sub("_(final|per_event)$", "", comparison.metric)
            pair = [known.get((*ref, metric)) for ref in (comparison.better, comparison.worse)]
            if None not in pair:
                assert comparison.sign * (comparison.share * pair[0] - pair[1]) > 0, comparison


@pytest.mark.parametrize("experiment", [name for name in STREAMED if not EXPERIMENTS[name].ours])
def test_both_scales_have_the_same_arms(experiment):
    lab, paper = configs(experiment, "lab"), configs(experiment, "paper")
    assert lab.keys() <= paper.keys()
    for part in lab:
        one, other = (list(scale[part]["learners"]) for scale in (lab, paper))
        if (experiment, part) == ("T:data_aug", "grid of α"):
            assert set(one) < set(other)
        else:
            assert one == other


# Verdicts.


def compared(one, other, *, metric="final_accuracy", **more):
    """The verdict on one learner against another; numbers by seed, or in the order of seeds."""
    by_seed = [values if isinstance(values, dict) else dict(enumerate(values)) for values in (one, other)]
    values = {("part", name, metric): numbers for name, numbers in zip("ab", by_seed, strict=True)}
    return judge(Comparison(("part", "a"), ("part", "b"), metric, **more), values)


# The 97.5% quantiles of Student's t, from a table: with n pairs there are n - 1 degrees of freedom.
T = {2: 12.7062, 3: 4.3027}


@pytest.mark.parametrize(
    ("one", "other", "more", "gain", "error", "pairs", "outcome"),
    [
        # Gains of 1.9 and 2.1: their mean 2, their standard deviation 0.1 * √2, its error 0.1; then 1 and 3: error 1.
        ([1.9, 2.1], [0, 0], {}, 2, 0.1, 2, "confirmed"),
        ([-1.9, -2.1], [0, 0], {}, -2, 0.1, 2, "refuted"),
        ([1, 3], [0, 0], {}, 2, 1, 2, "not decided"),
        # Beyond two errors, within the interval.
        ([1.5, 3], [0, 0], {}, 2.25, 0.75, 2, "not decided"),
        # Gains of 1, 2, 6: mean 3, squares 4 + 1 + 9 over 2 are 7, error √(7/3). Gains of 5, 6, 10: mean 7.
        ([1, 2, 6], [0, 0, 0], {}, 3, (7 / 3) ** 0.5, 3, "not decided"),
        ([5, 6, 10], [0, 0, 0], {}, 7, (7 / 3) ** 0.5, 3, "confirmed"),
        # Seeds differ much, the two learners always by the same: pairs decide.
        ([5, 50, 500], [4, 49, 499], {}, 1, 0, 3, "confirmed"),
        # No spread at all.
        ([2, 2], [1, 1], {}, 1, 0, 2, "confirmed"),
        ([1, 1], [2, 2], {}, -1, 0, 2, "refuted"),
        ([1, 1], [1, 1], {}, 0, 0, 2, "not decided"),
        # One pair says nothing, however far apart.
        ([9], [0], {}, 9, None, 1, "not decided"),
        # Only seeds that both have are pairs.
        ({0: 2.4, 1: 3.6, 7: -99}, {0: 0, 1: 1, 8: 99}, {}, 2.5, 0.1, 2, "confirmed"),
        # Already a share of it is better: 0.5 of 5 and 5.4 are 2.5 and 2.7, better by 0.5 and 0.7.
        ([5, 5.4], [2, 2], {"share": 0.5}, 0.6, 0.1, 2, "not decided"),
        ([8, 8.4], [2, 2], {"share": 0.5}, 2.1, 0.1, 2, "confirmed"),
        ([8, 8.4], [6, 6], {"share": 0.5}, -1.9, 0.1, 2, "refuted"),
        # Of calibration errors the lower is better.
        ([1, 2], [3, 4.2], {"metric": "average_ece"}, 2.1, 0.1, 2, "confirmed"),
        ([3, 4.2], [1, 2], {"metric": "average_ece"}, -2.1, 0.1, 2, "refuted"),
    ],
)
def test_comparisons(one, other, more, gain, error, pairs, outcome):
    verdict = compared(one, other, **more)
    assert verdict.outcome == outcome
    assert verdict.interval.mean == pytest.approx(gain)
    assert verdict.interval.half == (None if error is None else pytest.approx(T.get(pairs, 0) * error, rel=1e-4))
    assert verdict.interval.n == pairs


@pytest.mark.parametrize(("one", "other"), [({0: 2}, {1: 1}), ({}, {0: 1}), ([], [])])
def test_without_pairs_nothing_was_run(one, other):
    verdict = compared(one, other)
    assert (verdict.outcome, verdict.interval) == ("not run", None)


def test_a_claim_is_all_its_comparisons():
    """What one, all or none of them make of it is in the tests of the report's verdicts."""
    pairs = [([2, 2], [0, 0]), ([1, -1], [0, 0]), ([0, 0], [2, 2]), ([], [])]
    values, comparisons = {}, []
    for number, (one, other) in enumerate(pairs):
        values[str(number), "a", "x"], values[str(number), "b", "x"] = dict(enumerate(one)), dict(enumerate(other))
        comparisons.append(Comparison((str(number), "a"), (str(number), "b"), "x"))
    whole, verdicts = judge_claim(Claim("", tuple(comparisons)), values)
    assert [verdict.outcome for verdict in verdicts] == ["confirmed", "not decided", "refuted", "not run"]
    assert whole is verdicts[2]
    assert judge_claim(Claim("", tuple(comparisons[:1])), values)[0].outcome == "confirmed"
    assert judge_claim(Claim("", tuple(comparisons[:2])), values)[0].outcome == "not decided"
    assert judge_claim(Claim("", (comparisons[0], comparisons[3])), values)[0].outcome == "not run"


# Results.


def confusion(truth, predicted, counts):
    return Confusion(truth=tuple(truth), predicted=tuple(predicted), counts=counts)


def test_recency_bias_by_hand():
    """Four classes in order of coming; the columns of predictions are in another order.

    Of a and b, 20 images: 1 + 2 and 3 + 0 are taken for the last two, d and c. Of a, b and d, 30 images: 2, 0 and 7
    are taken for the last one, c.
    """
    lines = [[6, 1, 1, 2], [0, 7, 3, 0], [1, 1, 1, 7], [0, 0, 0, 10]]
    bias = results.recency_bias(confusion("abdc", "abdc", lines), 2)
    assert bias == {"bias_to_last_batch": 6 / 20, "bias_to_last_class": 9 / 30}
    swapped = [[line[3], line[0], line[2], line[1]] for line in lines]
    assert results.recency_bias(confusion("abdc", "cadb", swapped), 2) == bias


def test_a_class_that_was_never_predicted_takes_nothing():
    bias = results.recency_bias(confusion("abc", "ba", [[1, 3], [4, 0], [2, 2]]), 1)
    assert bias == {"bias_to_last_batch": 0.0, "bias_to_last_class": 0.0}


@pytest.mark.parametrize("last", [0, 2, 3])
def test_no_bias_without_older_classes(last):
    assert results.recency_bias(confusion("ab", "ab", [[1, 0], [0, 1]]), last) == {}


DIGITS = {
    "data": {"name": "digits"},
    "stream": {"test_every": 5},
    "seeds": [4],
    "learners": {"A": {"kind": "cssl", "model": "resnet8-16"}, "B": {"model": "resnet8-16"}},
}


def an_experiment(**changes):
    settings = {
        "name": "T:made_up",
        "title": "Made up",
        "varies": "x",
        "fixed": "y",
        "setting": lambda scale: Setting(scale, DIGITS, 10, 64, {}),
        "parts": lambda setting: {"one": setting.tree},
        "metrics": ("final_accuracy",),
        "numbers": {},
        "claims": (),
        "figures": (Figure("confusion", "what for what"),),
        "about": {"lab": ""},
    }
    return PaperExperiment(**{**settings, **changes})


def with_settings(**changes):
    return an_experiment(setting=lambda scale: Setting(scale, {**DIGITS, **changes}, 10, 64, {}))


COUNTS = ((2, 5, 3), (0, 9, 1), (0, 0, 10))


def a_finished_run(folder):
    """Files as an experiment leaves them: two learners, one seed, two tests; 5 s each, 2.6 s for both."""
    tests = [
        event(5, 1.0, classes=("a",), counts=[[10]], ece=0.123456),
        event(10, 0.55, classes=("a", "b", "c"), counts=COUNTS, ece=0.2),
    ]
    units = {name: [unit(4, {None: tests}, final_accuracy=0.5512345678)] for name in "AB"}
    write(folder, units, DIGITS, all_seconds=12.6)


def test_results_of_finished_runs(tmp_path):
    experiment = an_experiment()
    assert results.from_runs(experiment, "lab", tmp_path) is None
    a_finished_run(tmp_path / "T-made_up-lab")
    of_runs = results.from_runs(experiment, "lab", tmp_path)
    assert (of_runs.experiment, of_runs.scale) == ("T:made_up", "lab")
    assert of_runs.environment == ENVIRONMENT.model_dump()
    assert of_runs.duration == 12
    part = of_runs.parts["one"]
    wanted = results.addresses(experiment.configs("lab")["one"])
    assert (part.settings, part.examples) == ({name: wanted[name] for name in "AB"}, 20)
    assert part.kinds == {"A": "cssl", "B": "cold-start"}
    assert list(part.learners) == ["A", "B"]
    (run,) = part.learners["A"]
    # Two classes came with the last batch: of a's ten images eight are taken for them; of a's and b's 20 images four
    # for c.
    wanted = {
        "final_accuracy": 0.55123,
        "average_accuracy": 0.775,
        "average_top5": 1.0,
        "average_ece": 0.1,
        "bias_to_last_batch": 0.8,
        "bias_to_last_class": 0.2,
        "frozen_share": 0.0,
    }
    assert {name: run.numbers[name] for name in wanted} == wanted
    assert not {name for name in run.numbers if name.startswith(("omega", "offline", "accuracy of"))}
    assert run == KeptRun(
        seed=4,
        numbers=run.numbers,
        events=[KeptEvent(step=5, accuracy=1.0, ece=0.1235), KeptEvent(step=10, accuracy=0.55, ece=0.2)],
        confusion=confusion("abc", "abc", COUNTS),
        commit="0123456",
        seconds=6,  # its 5, and half of the 2.6 that were shared
        code="code",
    )


def test_confusions_are_kept_where_they_are_drawn(tmp_path):
    a_finished_run(tmp_path / "T-made_up-lab")
    part = results.from_runs(an_experiment(figures=()), "lab", tmp_path).parts["one"]
    assert part.learners["A"][0].confusion is None


def test_a_run_with_other_settings_does_not_count(tmp_path):
    a_finished_run(tmp_path / "T-made_up-lab")
    experiment = with_settings(learners={"A": DIGITS["learners"]["A"]})
    assert results.from_runs(experiment, "lab", tmp_path) is None
    with_others = results.from_runs(experiment, "lab", tmp_path, other_settings=True)
    assert list(with_others.parts["one"].learners) == ["A", "B"]
    (sentence,) = results.left_out(experiment, "lab", tmp_path, tmp_path / "kept")
    assert "T-made_up-lab is left out: it was run with other settings: learners.B: None → " in sentence


@pytest.mark.parametrize("change", [{"seeds": [5, 6]}, {"data": {"name": "digits", "root": "elsewhere"}}])
def test_seeds_and_places_are_not_other_settings(change, tmp_path):
    a_finished_run(tmp_path / "T-made_up-lab")
    experiment = with_settings(**change)
    assert results.left_out(experiment, "lab", tmp_path, tmp_path / "kept") == []
    assert results.from_runs(experiment, "lab", tmp_path) is not None


def test_a_setting_that_came_later_is_not_another(tmp_path):
    """A run from before a learner had it: it did what the default does."""
    a_finished_run(tmp_path / "T-made_up-lab")
    path = tmp_path / "T-made_up-lab" / "config.yaml"
    assert "zoom" in path.read_text()
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "zoom" not in line))
    assert results.left_out(an_experiment(), "lab", tmp_path, tmp_path / "kept") == []
    assert results.from_runs(an_experiment(), "lab", tmp_path) is not None


def test_runs_and_what_was_kept_together(tmp_path):
    """Seeds 4 and 7 were kept, seed 4 is run again: 7 stays, and another report changes nothing."""
    experiment, nowhere = an_experiment(), tmp_path / "nowhere"
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    a_finished_run(runs / "T-made_up-lab")
    of_runs = results.from_runs(experiment, "lab", runs)
    part = of_runs.parts["one"]
    old = {
        name: [of_learner[0].model_copy(update={"seed": seed, "commit": "old"}) for seed in (4, 7)]
        for name, of_learner in part.learners.items()
    }
    keep(of_runs.model_copy(update={"parts": {"one": part.model_copy(update={"learners": old})}}), kept)
    together = results.read_results(experiment, "lab", runs, kept)
    for of_learner in together.parts["one"].learners.values():
        assert [(run.seed, run.commit) for run in of_learner] == [(4, "0123456"), (7, "old")]
    assert together.duration == 4 * 6
    keep(together, kept)
    assert results.read_results(experiment, "lab", runs, kept) == together
    changed = with_settings(stream={"test_every": 2})
    assert results.read_results(changed, "lab", nowhere, kept) is None
    assert results.read_results(experiment, "lab", nowhere, kept).parts == together.parts
    (sentence,) = results.left_out(changed, "lab", nowhere, kept)
    assert sentence == "kept results of T:made_up, one, are left out, as settings have changed: A; B"
    another = with_settings(learners={**DIGITS["learners"], "B": {"kind": "er"}})
    assert list(results.read_results(another, "lab", nowhere, kept).parts["one"].learners) == ["A"]
    (sentence,) = results.left_out(another, "lab", nowhere, kept)
    assert sentence.endswith(": B")


def test_a_part_that_is_missing(tmp_path):
    experiment = an_experiment(parts=lambda setting: {"one": setting.tree, "two": setting.tree})
    assert results.from_runs(experiment, "lab", tmp_path) is None
    a_finished_run(tmp_path / "T-made_up-lab-one")
    one = results.from_runs(experiment, "lab", tmp_path)
    assert list(one.parts) == ["one"]
    # Two runs of the four took 12 s on one core.
    assert results.minutes(experiment, one) == pytest.approx(12 / 60 / 2 * 2)
    a_finished_run(tmp_path / "T-made_up-lab-two")
    assert list(results.from_runs(experiment, "lab", tmp_path).parts) == ["one", "two"]


TASKS = {
    "tasks": {"x": {"name": "digits"}, "y": {"name": "digits"}},
    "seeds": [0],
    "learners": {"A": {"kind": "cssl"}, "B": {"kind": "cssl"}},
}


def test_results_of_several_tasks(tmp_path):
    """Accuracies by task, no biases; the offline references are there as if they were a learner."""
    tests = {"x": [event(10, 0.9, task="x"), event(20, 0.7, task="x")], "y": [event(20, 0.8, task="y")]}
    units = {
        name: [unit(0, tests, offline={"x": [0.95], "y": [0.85]}, offline_accuracy=0.9)] for name in TASKS["learners"]
    }
    write(tmp_path / "T-made_up-lab", units, TASKS)
    experiment = an_experiment(setting=lambda scale: Setting(scale, TASKS, 20, 64, {}))
    part = results.from_runs(experiment, "lab", tmp_path).parts["one"]
    assert list(part.learners) == ["A", "B", "offline"]
    (run,), (offline,) = part.learners["A"], part.learners["offline"]
    accuracies = {name: value for name, value in run.numbers.items() if name.startswith("accuracy of")}
    assert accuracies == {"accuracy of x": 0.7, "accuracy of y": 0.8}
    assert run.numbers["final_accuracy"] == 0.75
    assert not {"bias_to_last_batch", "average_accuracy"} & run.numbers.keys()
    assert run.confusion is None
    assert [(test.task, test.step) for test in run.events] == [("x", 10), ("x", 20), ("y", 20)]
    assert offline.numbers == {"accuracy of x": 0.95, "accuracy of y": 0.85, "final_accuracy": 0.9}
    assert offline.events == []


# Tables.


def a_run(seed, **numbers):
    return KeptRun(seed=seed, numbers=numbers, events=[KeptEvent(step=10, accuracy=0.5)])


def kept_results(**parts):
    learners = {name: KeptPart(examples=1, learners=part) for name, part in parts.items()}
    return KeptResults(experiment="T:made_up", scale="lab", environment=None, parts=learners)


def two_parts():
    runs = [a_run(0, final_accuracy=0.5, omega_final=0.8), a_run(1, final_accuracy=0.7, omega_final=0.9)]
    return kept_results(one={"A": runs, "B": [a_run(0, final_accuracy=0.25)]}, two={"A": runs[:1]})


PRINTED = {
    ("one", "A", "omega_final"): (0.81, 0.012),
    ("two", "A", "omega_final"): (0.5, None),
}


def test_a_table_a_part():
    numbers = {("one", "A", "omega_final"): (0.81, 0.012)}
    experiment = an_experiment(metrics=("final_accuracy", "omega_final"), numbers=numbers)
    assert pages.tables(experiment, two_parts()) == [
        [
            ["one", "final accuracy", "Ω_all (final offline)", "paper"],
            ["A", "0.600 ± 0.141", "0.850 ± 0.071", "0.810 ± 0.012"],
            ["B", "0.250", "–", ""],
        ],
        [["two", "final accuracy", "Ω_all (final offline)"], ["A", "0.500", "0.800"]],
    ]


def test_a_table_of_lines():
    experiment = an_experiment(metrics=("omega_final",), numbers=PRINTED, layout="lines")
    assert pages.tables(experiment, two_parts()) == [
        [
            ["", "Ω_all (final offline)", "paper"],
            ["one, A", "0.850 ± 0.071", "0.810 ± 0.012"],
            ["one, B", "–", ""],
            ["two, A", "0.800", "0.500"],
        ]
    ]


def test_a_table_of_columns():
    experiment = an_experiment(metrics=("omega_final",), numbers=PRINTED, layout="columns")
    assert pages.tables(experiment, two_parts()) == [
        [
            ["Ω_all (final offline) (paper)", "one", "two"],
            ["A", "0.850 ± 0.071 (0.810 ± 0.012)", "0.800 (0.500)"],
            ["B", "–", "–"],
        ]
    ]


def test_columns_of_tasks():
    metric = "accuracy of birds"
    experiment = an_experiment(metrics=(metric,), numbers={("cold", "A", metric): (0.0937, 0.0008)})
    tables = pages.tables(experiment, kept_results(cold={"A": [a_run(0, **{metric: 0.4})]}))
    assert tables == [[["cold", "birds", "paper"], ["A", "0.400", "0.0937 ± 0.0008"]]]


@pytest.mark.parametrize("claim", CENTRAL, ids=lambda claim: claim.text)
def test_central_claims_are_about_what_is_run(claim):
    for scale, experiment, comparison in claim.places():
        if scale not in EXPERIMENTS[experiment].scales:
            continue
        trees = configs(experiment, scale)
        for part, name in (comparison.better, comparison.worse):
            assert name in trees[part]["learners"], (part, name)
            assert comparison.metric in metrics_of(trees[part])


def merged(first, changes):
    """Return settings with changes on top; learners are all replaced."""
    both = {**first, **changes}
    for key, value in changes.items():
        if key != "learners" and isinstance(value, dict) and isinstance(first.get(key), dict):
            both[key] = merged(first[key], value)
    return both


@pytest.mark.parametrize("experiment", STREAMED)
def test_settings_on_a_page_are_those_of_the_experiment(experiment):
    """The first block is an experiment that runs; the others are what their parts change in it."""
    for scale in EXPERIMENTS[experiment].scales:
        first, *others = map(yaml.safe_load, pages._settings(EXPERIMENTS[experiment], scale))
        for tree, shown in zip(configs(experiment, scale).values(), (first, *others), strict=True):
            given = shown if shown.keys() >= first.keys() else merged(first, shown)
            assert reading.write_config(reading.make_config(given)) == reading.write_config(reading.make_config(tree))
