"""The catalog of the paper held against the paper, and what makes verdicts and tables of results."""

import json
import math
import re
import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from coldstream.data import DATASETS, Dataset
from coldstream.lab import config
from coldstream.models import MODELS
from coldstream.paper import ROWS, get_row, imagenet, results, verdicts
from coldstream.paper.catalog import Claim, Comparison, Figure, Row, Setting
from coldstream.streams import make_stream

PAPER = runpy.run_path(str(Path(__file__).with_name("paper_settings.py")))
SETTINGS, NUMBERS = PAPER["ROWS"], PAPER["NUMBERS"]
PARTS = [(row, part) for row, parts in SETTINGS.items() for part in parts]
SECTIONS = {
    "data": config.DataConfig,
    "stream": config.StreamConfig,
    "base": config.BaseConfig,
    "offline": config.OfflineConfig,
}


@cache
def experiments(row, scale="paper"):
    return ROWS[row].experiments(scale)


def section(tree, name):
    """A section with its defaults; those of the tree may be ones that the config does not know yet."""
    defaults = {key: field.default for key, field in SECTIONS[name].model_fields.items()}
    return {**defaults, **tree.get(name, {})}


def arm(tree, name):
    """A learner's settings as an experiment resolves them: defaults, what all have in common, its own."""
    own = tree["learners"][name]
    return {**config._settings_of(config.learner_class(own["kind"])), **tree["learner"], **own}


def differences(wanted, found):
    """What is other than wanted, a line each."""
    return [
        f"{key}: the paper has {value!r}, the catalog {found.get(key, 'nothing')!r}"
        for key, value in wanted.items()
        if not (value.admits(found.get(key)) if hasattr(value, "admits") else _same(value, found.get(key, "nothing")))
    ]


def _same(one, other):
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


# The helpers above must be able to say no.


@pytest.mark.parametrize(
    ("wanted", "found", "equal"),
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
def test_comparing(wanted, found, equal):
    assert differences({"x": wanted}, {"x": found}) == [] if equal else differences({"x": wanted}, {"x": found})


# Names.


SPEC_NAMES = [*SETTINGS, "T:cssl_timing"]


@pytest.mark.parametrize("name", SPEC_NAMES)
def test_the_catalog_has_every_table_and_figure(name):
    assert get_row(name) is get_row(name.replace(":", "-"))
    assert get_row(name).name == name


def test_the_confusion_matrices_belong_to_the_gap():
    assert any("fig:class_imb" in figure.title for figure in ROWS["fig:perf_gap"].figures)


def test_rows_are_told_apart():
    with pytest.raises(ValueError, match="T:compres"):
        get_row("T:compres")
    names = [tree["name"] for row in ROWS for scale in ("lab", "paper") for tree in experiments(row, scale).values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", SETTINGS)
def test_parts_of_the_paper(row):
    assert set(experiments(row)) == set(SETTINGS[row])


@pytest.mark.parametrize(("row", "part"), PARTS)
def test_arms_of_the_paper(row, part):
    wanted = set(SETTINGS[row][part]["arms"])
    assert wanted in ({"*"}, set(experiments(row)[part]["learners"]))


# Settings.


@pytest.mark.parametrize(("row", "part"), PARTS)
@pytest.mark.parametrize("name", SECTIONS)
def test_section(row, part, name):
    wanted = SETTINGS[row][part].get(name, {})
    assert differences(wanted, section(experiments(row)[part], name)) == []


@pytest.mark.parametrize(("row", "part"), PARTS)
def test_permutations(row, part):
    wanted = SETTINGS[row][part].get("permutations")
    assert wanted is None or len(experiments(row)[part]["seeds"]) == wanted


@pytest.mark.parametrize(("row", "part"), PARTS)
def test_tasks(row, part):
    wanted = SETTINGS[row][part].get("tasks", [])
    found = [(task, section({"data": own}, "data")) for task, own in experiments(row)[part].get("tasks", {}).items()]
    assert [task for task, _ in found] == [task for task, _ in wanted]
    for (_, one), (_, other) in zip(wanted, found, strict=True):
        assert differences(one, other) == []


ARMS = [
    (row, part, name, name if name in SETTINGS[row][part]["arms"] else "*")
    for row, part in PARTS
    for name in experiments(row).get(part, {"learners": {}})["learners"]
    if {name, "*"} & SETTINGS[row][part]["arms"].keys()
]


@pytest.mark.parametrize(("row", "part", "name", "like"), ARMS)
def test_arm(row, part, name, like):
    tree = experiments(row)[part]
    found = arm(tree, name)
    based = found["kind"] == "remind" or found.get("init") == "base" or found.get("base_init", False)
    found |= {"based": based, "holds": holds(tree, found), "codebooks": codebooks(found)}
    assert differences(SETTINGS[row][part]["arms"][like], found) == []


IMAGES = {"cifar100": 50_000, "core50": 6_000, "imagenet": 1_281_167}


def holds(tree, found):
    """How many images the buffer ends up with; None where a stored image has no fixed size."""
    if tree.get("data", {}).get("name") not in IMAGES or "codec" not in found or "jpeg" in found["codec"]:
        return None
    side, bits = found["size"], 8
    for name, value in re.findall(r"(resize|quantize)\(([\d.]+)\)", found["codec"]):
        side, bits = (round(side * float(value) ** 0.5), bits) if name == "resize" else (side, int(value))
    capacity = found["capacity"]
    if isinstance(capacity, str):
        number, unit = re.fullmatch(r"([\d.]+)(MB|GB)", capacity).groups()
        capacity = int(float(number) * {"MB": 10**6, "GB": 10**9}[unit] / (side * side * 3 * bits / 8))
    return min(IMAGES[tree["data"]["name"]], capacity or 10**9)


def codebooks(found):
    """Those of REMIND: without a number the 32 of the paper, if a map then takes less than half an image."""
    if found["kind"] != "remind" or found["codebooks"] is not None:
        return found.get("codebooks")
    positions = (found["size"] // 32) ** 2  # of torchvision's networks
    return 32 if 32 * positions < found["size"] ** 2 * 3 / 2 else None


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
    stream = make_stream(data, seed=0, **experiments("T:core50")[part]["stream"])
    assert stream.batches == (1200, 2400, 3600, 4800, 6000)
    assert [event.step for event in stream.events] == [1200, 2400, 3600, 4800, 6000]
    seen = [2, 4, 6, 8, 10] if part.startswith("C") else [10] * 5
    assert [len(event.classes) for event in stream.events] == seen


def test_frozen_shares_rise_from_nothing():
    for tree in experiments("fig:layer_freeze").values():
        shares = [own["freeze"] for own in tree["learners"].values()]
        assert shares[0] == 0
        assert len(shares) > 2
        assert shares == sorted(set(shares))
        assert len({repr({**own, "freeze": 0}) for own in tree["learners"].values()}) == 1


@pytest.mark.parametrize("row", SETTINGS)
def test_names_that_the_paper_scale_uses(row):
    for tree in experiments(row).values():
        names = {own["name"] for own in tree.get("tasks", {"": tree.get("data")}).values()}
        assert names <= DATASETS.keys()
        assert {arm(tree, name)["model"] for name in tree["learners"]} <= MODELS.keys()


@pytest.mark.parametrize("name", PAPER["MT_DATASETS"])
def test_data_sets_of_several_tasks(name):
    source = DATASETS[name]
    assert (source.classes, source.train, source.test) == PAPER["MT_DATASETS"][name]


def test_images_of_several_tasks():
    for row in ("tab:mt_stream", "tab:mt_stream_strat"):
        assert ROWS[row].setting("paper").images == sum(train for _, train, _ in PAPER["MT_DATASETS"].values())


# Numbers.


def numbers(row):
    """The catalog's numbers of a row; accuracies in %, as the paper has them."""
    return {
        key: tuple(None if value is None else 100 * value for value in pair) if "accuracy" in key[2] else pair
        for key, pair in ROWS[row].numbers.items()
    }


def plain(found):
    """Without which offline accuracy an Ω is a share of."""
    return {
        (part, name, re.sub("_(final|per_event)$", "", metric)): pair for (part, name, metric), pair in found.items()
    }


@pytest.mark.parametrize("row", SETTINGS)
def test_numbers(row):
    wanted, found = plain(NUMBERS[row]), plain(numbers(row))
    assert found.keys() == wanted.keys()
    for key, (mean, sd) in wanted.items():
        assert found[key][0] == pytest.approx(mean, abs=1e-9), key
        assert found[key][1] == (None if sd is None else pytest.approx(sd, abs=1e-9)), key


@pytest.mark.parametrize("row", [row for row in SETTINGS if NUMBERS[row]])
def test_which_offline_accuracy_the_paper_divides_by(row):
    assert {metric for *_, metric in numbers(row)} == {metric for *_, metric in NUMBERS[row]}


@pytest.mark.parametrize("row", SETTINGS)
def test_numbers_are_of_arms_and_in_the_table(row):
    for part, name, metric in ROWS[row].numbers:
        for scale in ("lab", "paper"):
            tree = experiments(row, scale)[part]
            assert name in tree["learners"] or ("tasks" in tree and name == "offline")
        assert metric in ROWS[row].metrics


def test_averages_over_tasks():
    """What the paper prints as averages are averages of its own numbers."""
    found = NUMBERS["tab:mt_stream_strat"]
    for name in SETTINGS["tab:mt_stream_strat"]["pre-trained"]["arms"]:
        each = [found["pre-trained", name, f"accuracy of {task}"][0] for task, _ in PAPER["TASKS"]]
        assert sum(each) / 4 == pytest.approx(found["pre-trained", name, "final_accuracy"][0], abs=0.006)


def test_timing():
    wanted = sorted(pair for own in PAPER["TIMING"].values() for pair in own if pair is not None)
    assert sorted(ROWS["T:cssl_timing"].numbers.values()) == wanted


def test_offline_accuracies_of_architectures():
    wanted = {name: pytest.approx(value / 100) for name, value in PAPER["OFFLINE_TOP5"].items()}
    assert wanted == imagenet.OFFLINE_TOP5


# Claims.


OMEGAS = {f"{top}omega_{which}" for top in ("", "top5_") for which in ("per_event", "final")}
ALWAYS = {
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
    found = set(ALWAYS)
    if section(tree, "offline")["enabled"]:
        found |= {name for name in OMEGAS if name.endswith("final") or not section(tree, "offline")["last_only"]}
    # Classes that come one after another, with a test before the last ones.
    if section(tree, "stream")["ordering"] not in ("iid", "instance"):
        found |= BIASES
    return found


STREAMED = [name for name, row in ROWS.items() if row.measured is None]


@pytest.mark.parametrize("row", STREAMED)
def test_claims_are_about_what_is_run(row):
    lab = experiments(row, "lab")
    for claim in ROWS[row].claims:
        assert claim.comparisons, claim.text
        for comparison in claim.comparisons:
            assert comparison.better != comparison.worse
            for part, name in (comparison.better, comparison.worse):
                assert name in lab[part]["learners"], (part, name)
                assert comparison.metric in metrics_of(lab[part]), comparison.metric


@pytest.mark.parametrize("scale", ["lab", "paper"])
@pytest.mark.parametrize("row", STREAMED)
def test_metrics_are_those_of_every_part(row, scale):
    for tree in experiments(row, scale).values():
        assert set(ROWS[row].metrics) <= metrics_of(tree)


@pytest.mark.parametrize("row", SETTINGS)
def test_claims_are_true_of_the_paper(row):
    """A claim is the paper's: where it gives both numbers, they are in that order."""
    known = {key: pair[0] for key, pair in plain(NUMBERS[row]).items()}
    for claim in ROWS[row].claims:
        for comparison in claim.comparisons:
            metric = re.sub("_(final|per_event)$", "", comparison.metric)
            pair = [known.get((*ref, metric)) for ref in (comparison.better, comparison.worse)]
            if None not in pair:
                assert comparison.sign * (comparison.share * pair[0] - pair[1]) > comparison.margin, comparison


@pytest.mark.parametrize("row", STREAMED)
def test_both_scales_have_the_same_arms(row):
    lab, paper = experiments(row, "lab"), experiments(row, "paper")
    assert lab.keys() <= paper.keys()
    for part in lab:
        one, other = (list(scale[part]["learners"]) for scale in (lab, paper))
        if (row, part) == ("T:data_aug", "grid of α"):
            assert set(one) < set(other)
        else:
            assert one == other


# Verdicts.


def compared(one, other, *, metric="final_accuracy", margin=0.0):
    """The judgement of one learner against another; numbers by seed, or in the order of seeds."""
    by_seed = [values if isinstance(values, dict) else dict(enumerate(values)) for values in (one, other)]
    values = {("part", name, metric): mine for name, mine in zip("ab", by_seed, strict=True)}
    return verdicts.judge(Comparison(("part", "a"), ("part", "b"), metric, margin), values)


@pytest.mark.parametrize(
    ("one", "other", "more", "gain", "error", "verdict"),
    [
        # Gains of 1 and 3: their mean 2, their standard deviation √2, its error 1: not beyond two errors.
        ([1, 3], [0, 0], {}, 2, 1, "undecided at this scale"),
        ([1.5, 3], [0, 0], {}, 2.25, 0.75, "confirmed"),
        ([-1.5, -3], [0, 0], {}, -2.25, 0.75, "contradicted"),
        # Gains of 1, 2, 6: mean 3, squares 4 + 1 + 9 over 2 are 7, error √(7/3).
        ([1, 2, 6], [0, 0, 0], {}, 3, (7 / 3) ** 0.5, "undecided at this scale"),
        # Seeds differ much, the two learners always by the same: pairs decide.
        ([5, 50, 500], [4, 49, 499], {}, 1, 0, "confirmed"),
        # No spread at all.
        ([2, 2], [1, 1], {}, 1, 0, "confirmed"),
        ([1, 1], [2, 2], {}, -1, 0, "contradicted"),
        ([1, 1], [1, 1], {}, 0, 0, "undecided at this scale"),
        # One pair says nothing, however far apart.
        ([9], [0], {}, 9, None, "undecided at this scale"),
        # Only seeds that both have are pairs.
        ({0: 2, 1: 4, 7: -99}, {0: 0, 1: 1, 8: 99}, {}, 2.5, 0.5, "confirmed"),
        ({0: 2}, {1: 1}, {}, None, None, "not run"),
        ({}, {0: 1}, {}, None, None, "not run"),
        # Better by more than a margin: the gains less 2 are 0.5 and 1.5; less 3, -0.5 and 0.5; less 9, far below.
        ([2.5, 3.5], [0, 0], {"margin": 2}, 1, 0.5, "undecided at this scale"),
        ([2.5, 3.5], [0, 0], {"margin": 1.5}, 1.5, 0.5, "confirmed"),
        ([2.5, 3.5], [0, 0], {"margin": 9}, -6, 0.5, "contradicted"),
        # Of calibration errors the lower is better.
        ([1, 2], [3, 5], {"metric": "average_ece"}, 2.5, 0.5, "confirmed"),
        ([3, 5], [1, 2], {"metric": "average_ece"}, -2.5, 0.5, "contradicted"),
    ],
)
def test_judgements(one, other, more, gain, error, verdict):
    found = compared(one, other, **more)
    assert found.gain == (None if gain is None else pytest.approx(gain))
    assert found.error == (None if error is None else pytest.approx(error))
    assert found.verdict == verdict


def test_pairs_are_counted():
    assert compared({0: 2, 1: 4, 7: -99}, {0: 0, 1: 1, 8: 99}).pairs == 2
    assert compared([], []).pairs == 0


YES, NO, PERHAPS, NONE = ([2, 2], [0, 0]), ([0, 0], [2, 2]), ([1, -1], [0, 0]), ([], [])


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        ([YES, YES], "confirmed"),
        ([YES, PERHAPS], "undecided at this scale"),
        ([YES, NO], "contradicted"),
        ([PERHAPS, NO, YES], "contradicted"),
        ([YES, NONE], "not run"),
        ([NO, NONE, PERHAPS], "contradicted"),
        ([NONE, PERHAPS], "not run"),
    ],
)
def test_a_claim_is_all_its_comparisons(pairs, verdict):
    values, comparisons = {}, []
    for number, (one, other) in enumerate(pairs):
        values[str(number), "a", "x"], values[str(number), "b", "x"] = dict(enumerate(one)), dict(enumerate(other))
        comparisons.append(Comparison((str(number), "a"), (str(number), "b"), "x"))
    kind, judged = verdicts.verdict(Claim("", tuple(comparisons)), values)
    assert kind == verdict
    assert [one.comparison for one in judged] == comparisons


# Results.


def test_biases_by_hand():
    """Four classes in order of coming; the guesses' columns are in another order.

    Of a and b, 20 images: for the last two, d and c, go 1 + 2 and 3 + 0; for the last one, c, go 2 and 0. Of a, b
    and d, 30: for c go 2, 0 and 7.
    """
    rows = [[6, 1, 1, 2], [0, 7, 3, 0], [1, 1, 1, 7], [0, 0, 0, 10]]
    found = results.biases(["a", "b", "d", "c"], ["a", "b", "d", "c"], rows, 2)
    assert found == {"bias_to_last_batch": 6 / 20, "bias_to_last_class": 9 / 30}
    swapped = [[row[3], row[0], row[2], row[1]] for row in rows]
    assert results.biases(["a", "b", "d", "c"], ["c", "a", "d", "b"], swapped, 2) == found


def test_a_class_that_was_never_a_guess_takes_nothing():
    found = results.biases(["a", "b", "c"], ["b", "a"], [[1, 3], [4, 0], [2, 2]], 1)
    assert found == {"bias_to_last_batch": 0.0, "bias_to_last_class": 0.0}


@pytest.mark.parametrize("last", [0, 2, 3])
def test_no_bias_without_older_classes(last):
    assert results.biases(["a", "b"], ["a", "b"], [[1, 0], [0, 1]], last) == {}


def a_run(seed, **values):
    return {"seed": seed, "numbers": values, "events": [{"step": 10, "accuracy": 0.5}]}


FOUND = {
    "row": "T:compress",
    "scale": "lab",
    "date": "2025-01-02",
    "environment": {"commit": "0123456789", "threads": 1, "torch": "2.7"},
    "parts": {
        'one, "quoted"': {
            "settings": "0123",
            "examples": 20,
            "learners": {
                "A": [a_run(0, final_accuracy=0.5, average_ece=0.1), a_run(3, final_accuracy=0.7)],
                "B": [a_run(0, final_accuracy=0.25, omega_final=None)],
            },
        },
        "two": {"settings": "4567", "examples": 30, "learners": {"A": [a_run(1, final_accuracy=1.0)]}},
    },
}


def test_what_is_kept_is_what_was_found(tmp_path):
    row = ROWS["T:compress"]
    assert results.of_file(row, "lab", tmp_path / "kept") is None
    results.keep(FOUND, tmp_path / "kept")
    assert results.of_file(row, "lab", tmp_path / "kept") == FOUND
    assert results.of_file(row, "paper", tmp_path / "kept") is None
    lines = (tmp_path / "kept" / "T-compress-lab.json").read_text().splitlines()
    assert sum('"seed"' in line for line in lines) == 4
    assert all(line.count('"seed"') <= 1 for line in lines)


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "T-compress-lab.json").write_text('{"row": ')
    with pytest.raises(ValueError, match="T-compress-lab.json is not a file of results.*delete it"):
        results.of_file(ROWS["T:compress"], "lab", tmp_path)


def test_values():
    part = 'one, "quoted"'
    found = {key: mine for key, mine in results.values_of(FOUND).items() if mine}
    assert found == {
        (part, "A", "final_accuracy"): {0: 0.5, 3: 0.7},
        (part, "A", "average_ece"): {0: 0.1},
        (part, "B", "final_accuracy"): {0: 0.25},
        ("two", "A", "final_accuracy"): {1: 1.0},
    }
    both = results.summary_of(found, part, "A", "final_accuracy")
    assert (both.mean, both.sd, both.n) == (pytest.approx(0.6), pytest.approx(0.02**0.5), 2)
    assert results.summary_of(found, part, "B", "omega_final") is None
    assert results.summary_of(found, "three", "A", "final_accuracy") is None


DIGITS = {
    "data": {"name": "digits"},
    "stream": {"test_every": 5},
    "seeds": [4],
    "learners": {"A": {"model": "resnet8-16"}, "B": {"model": "resnet8-16"}},
}


def a_row(**changes):
    own = {
        "name": "T:own",
        "title": "Ours",
        "varies": "x",
        "fixed": "y",
        "setting": lambda scale: Setting(scale, DIGITS, 10, 64, {}),
        "parts": lambda setting: {"one": setting.tree},
        "metrics": ("final_accuracy",),
        "numbers": {},
        "claims": (),
        "figures": (Figure("confusion", "what for what"),),
        "lab": "",
    }
    return Row(**{**own, **changes})


def a_finished_run(folder):
    """Files as an experiment leaves them: two learners, one seed, two tests."""
    folder.mkdir(parents=True)
    tests = [{"step": 5, "accuracy": 1.0, "ece": 0.123456, "classes": 1, "top5": 1.0, "images": 10}]
    tests += [{"step": 10, "accuracy": 0.55, "ece": 0.2, "classes": 3, "top5": 1.0, "images": 30}]
    run = {
        "seed": 4,
        "final_accuracy": 0.5512345678,
        "events": tests,
        "offline": [],
        "omega_final": None,
        "steps": 10,
    }
    confusion = {"columns": ["a", "b", "c"], "rows": [[2, 5, 3], [0, 9, 1], [0, 0, 10]]}
    last = {"step": 10, "classes": ["a", "b", "c"], "confusion": confusion}
    first = {"step": 5, "classes": ["a"], "confusion": {"columns": ["a"], "rows": [[10]]}}
    learners = {name: {"mean": {}, "runs": [run]} for name in "AB"}
    lines = [{"learner": name, "seed": 4, **test} for name in "AB" for test in (first, last)]
    timing = [{"seconds": 5.0, "environment": {"torch": "2.7", "commit": "0123456789"}}]
    (folder / "config.yaml").write_text(config.write_config(config.make_config({**DIGITS, "name": folder.name})))
    (folder / "summary.json").write_text(json.dumps({"examples": 10, "learners": learners}))
    (folder / "timing.json").write_text(json.dumps({"seconds": 12.6, "learners": dict.fromkeys("AB", timing)}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return confusion


def test_results_of_finished_runs(tmp_path):
    row = a_row()
    assert results.of_runs(row, "lab", tmp_path) is None
    confusion = a_finished_run(tmp_path / "T-own-lab")
    found = results.of_runs(row, "lab", tmp_path)
    assert {key: found[key] for key in ("row", "scale", "environment")} == {
        "row": "T:own",
        "scale": "lab",
        "environment": {"torch": "2.7", "commit": "0123456789"},
    }
    assert results.seconds(found) == 12
    assert list(found["parts"]["one"]["learners"]) == ["A", "B"]
    assert found["parts"]["one"]["learners"]["A"] == [
        {
            "seed": 4,
            # Two classes came with the last batch: of a's ten images eight are taken for them; of a's and b's 20
            # images four for c.
            "numbers": {
                "final_accuracy": 0.55123,
                "average_accuracy": 0.775,
                "average_top5": 1.0,
                "bias_to_last_batch": 0.8,
                "bias_to_last_class": 0.2,
            },
            "events": [
                {"step": 5, "accuracy": 1.0, "ece": 0.1235},
                {"step": 10, "accuracy": 0.55, "ece": 0.2},
            ],
            "confusion": {"classes": ["a", "b", "c"], **confusion},
            "commit": "0123456",
            "seconds": 6,  # its own 5, and half of the 2.6 that were shared
        }
    ]


def test_a_run_of_other_settings_is_not_the_rows(tmp_path):
    a_finished_run(tmp_path / "T-own-lab")
    fewer = {**DIGITS, "learners": {"A": {"model": "resnet8-16"}}}
    row = a_row(setting=lambda scale: Setting(scale, fewer, 10, 64, {}))
    assert results.of_runs(row, "lab", tmp_path) is None
    assert list(results.of_runs(row, "lab", tmp_path, changed=True)["parts"]["one"]["learners"]) == ["A", "B"]
    (said,) = results.left_out(row, "lab", tmp_path, tmp_path / "kept")
    assert "T-own-lab is not in it, for it was run with other settings: learners.B: None → " in said


@pytest.mark.parametrize("change", [{"seeds": [5, 6]}, {"data": {"name": "digits", "root": "elsewhere"}}])
def test_seeds_and_places_are_not_other_settings(change, tmp_path):
    a_finished_run(tmp_path / "T-own-lab")
    row = a_row(setting=lambda scale: Setting(scale, {**DIGITS, **change}, 10, 64, {}))
    assert results.left_out(row, "lab", tmp_path, tmp_path / "kept") == []
    assert results.of_runs(row, "lab", tmp_path) is not None


def test_a_setting_that_came_later_is_not_another(tmp_path):
    """A run from before a learner had it: it did what the default does."""
    a_finished_run(tmp_path / "T-own-lab")
    path = tmp_path / "T-own-lab" / "config.yaml"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "zoom" not in line))
    assert results.left_out(a_row(), "lab", tmp_path, tmp_path / "kept") == []


def test_runs_and_what_was_kept_together(tmp_path):
    """Seeds 4 and 7 were kept, seed 4 is run again: 7 stays, and another report changes nothing."""
    row = a_row()
    a_finished_run(tmp_path / "runs" / "T-own-lab")
    found = results.of_runs(row, "lab", tmp_path / "runs")
    part = found["parts"]["one"]
    old = {
        name: [{**runs[0], "seed": seed, "commit": "old"} for seed in (4, 7)]
        for name, runs in part["learners"].items()
    }
    results.keep({**found, "parts": {"one": {**part, "learners": old}}}, tmp_path / "kept")
    together = results.read(row, "lab", tmp_path / "runs", tmp_path / "kept")
    for runs in together["parts"]["one"]["learners"].values():
        assert [(run["seed"], run["commit"]) for run in runs] == [(4, "0123456"), (7, "old")]
    assert results.seconds(together) == 4 * 6
    results.keep(together, tmp_path / "kept")
    assert results.read(row, "lab", tmp_path / "runs", tmp_path / "kept") == together
    changed = a_row(setting=lambda scale: Setting(scale, {**DIGITS, "stream": {"test_every": 2}}, 10, 64, {}))
    assert results.read(changed, "lab", tmp_path / "nowhere", tmp_path / "kept") is None
    assert results.read(row, "lab", tmp_path / "nowhere", tmp_path / "kept")["parts"] == together["parts"]


def test_a_part_that_is_missing(tmp_path):
    row = a_row(parts=lambda setting: {"one": setting.tree, "two": setting.tree})
    assert results.of_runs(row, "lab", tmp_path) is None
    a_finished_run(tmp_path / "T-own-lab-one")
    found = results.of_runs(row, "lab", tmp_path)
    assert list(found["parts"]) == ["one"]
    # Two runs of the four took 12 s on one core.
    assert results.minutes(row, found) == pytest.approx(12 / 60 / 2 * 2)
    a_finished_run(tmp_path / "T-own-lab-two")
    assert list(results.of_runs(row, "lab", tmp_path)["parts"]) == ["one", "two"]


# Tables. What is imported here draws pictures, too.


def two_parts():
    runs = [a_run(0, final_accuracy=0.5, omega_final=0.8), a_run(1, final_accuracy=0.7, omega_final=0.9)]
    one = {"A": runs, "B": [a_run(0, final_accuracy=0.25)]}
    return {"parts": {"one": {"examples": 1, "learners": one}, "two": {"examples": 1, "learners": {"A": runs[:1]}}}}


PRINTED = {
    ("one", "A", "omega_final"): (0.81, 0.012),
    ("two", "A", "omega_final"): (0.5, None),
}


def test_a_table_a_part():
    from coldstream.paper import page

    row = a_row(metrics=("final_accuracy", "omega_final"), numbers={("one", "A", "omega_final"): (0.81, 0.012)})
    assert page.tables(row, two_parts()) == [
        [
            ["one", "final accuracy", "Ω_all (final offline)", "paper"],
            ["A", "0.600 ± 0.141", "0.850 ± 0.071", "0.810 ± 0.012"],
            ["B", "0.250", "–", ""],
        ],
        [["two", "final accuracy", "Ω_all (final offline)"], ["A", "0.500", "0.800"]],
    ]


def test_a_table_of_lines():
    from coldstream.paper import page

    row = a_row(metrics=("omega_final",), numbers=PRINTED, layout="lines")
    assert page.tables(row, two_parts()) == [
        [
            ["", "Ω_all (final offline)", "paper"],
            ["one, A", "0.850 ± 0.071", "0.810 ± 0.012"],
            ["one, B", "–", ""],
            ["two, A", "0.800", "0.500"],
        ]
    ]


def test_a_table_of_columns():
    from coldstream.paper import page

    row = a_row(metrics=("omega_final",), numbers=PRINTED, layout="columns")
    assert page.tables(row, two_parts()) == [
        [
            ["Ω_all (final offline) (paper)", "one", "two"],
            ["A", "0.850 ± 0.071 (0.810 ± 0.012)", "0.800 (0.500)"],
            ["B", "–", "–"],
        ]
    ]


def test_columns_of_tasks():
    from coldstream.paper import page

    metric = "accuracy of birds"
    found = {"parts": {"cold": {"examples": 1, "learners": {"A": [a_run(0, **{metric: 0.4})]}}}}
    row = a_row(metrics=(metric,), numbers={("cold", "A", metric): (0.0937, 0.0008)})
    assert page.tables(row, found) == [[["cold", "birds", "paper"], ["A", "0.400", "0.0937 ± 0.0008"]]]
