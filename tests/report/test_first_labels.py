"""Targets of the first labels, on numbers made by hand."""

import json

import numpy as np
import pytest
from scipy import stats

from coldstream.report import first_labels
from coldstream.report.first_labels import FULL, LIGHT, LINEAR, OURS, PRETRAINED


def run(seed, accuracies, ece, images=2000, offline=None):
    events = [
        {"step": step, "accuracy": accuracy, "ece": ece, "ece_debiased": ece - 0.03, "images": images}
        for step, accuracy in zip((20, 60, 100), accuracies, strict=True)
    ]
    reference = [] if offline is None else [{"accuracy": offline}]
    return {"seed": seed, "events": events, "offline": reference, "final_accuracy": accuracies[-1]}


def summary(ours, light, full, **settings):
    learners = {
        name: {"runs": [run(seed, a, **settings) for seed, a in enumerate(mine)]}
        for name, mine in ((OURS, ours), (LIGHT, light), (FULL, full))
    }
    return {"name": "first-labels-hand", "ordering": "class-incremental", "examples": 100, "learners": learners}


ONES = {"ours": [[0.0, 0.5, 0.6]] * 3, "light": [[1.0, 0.5, 0.4]] * 3, "full": [[1.0, 0.3, 0.5]] * 3}


def found(summary):
    return {target.what: target for target in first_labels.targets(summary)}


def test_the_better_policy_is_chosen_test_by_test_and_early_tests_do_not_count():
    made = summary(**ONES, ece=0.04)
    np.testing.assert_array_equal(first_labels.better(made), [[0.5, 0.5]] * 3)
    worst = found(made)["points ahead of the better fixed policy, at the worst test"]
    assert worst.met
    assert worst.measured == "+0.0 ± 0.0"
    assert found(made)["points ahead of crops and flips, at the end"].measured == "+20.0 ± 0.0"


def test_behind_by_more_than_a_point_is_forgiven_only_within_the_interval():
    what = "points ahead of the better fixed policy, at the worst test"
    sure = summary([[1, 0.48, 0.6]] * 3, **{k: ONES[k] for k in ("light", "full")}, ece=0.04)
    assert not found(sure)[what].met
    unsure = summary([[1, a, 0.6] for a in (0.44, 0.48, 0.52)], **{k: ONES[k] for k in ("light", "full")}, ece=0.04)
    half = stats.t.ppf(0.975, 2) * 0.04 / np.sqrt(3)
    assert found(unsure)[what].met
    assert found(unsure)[what].measured == f"-2.0 ± {100 * half:.1f}"
    single = summary([[1, 0.48, 0.6]], [[1.0, 0.5, 0.4]], [[1.0, 0.3, 0.5]], ece=0.04)
    assert not found(single)[what].met


def test_the_worst_test_is_the_one_that_decides():
    """Not the one furthest behind, whose interval forgives it."""
    ours = [[1, a, b] for a, b in ((0.35, 0.484), (0.47, 0.485), (0.59, 0.486))]
    made = summary(ours, [[1.0, 0.5, 0.5]] * 3, [[1.0, 0.3, 0.3]] * 3, ece=0.04)
    target = found(made)["points ahead of the better fixed policy, at the worst test"]
    assert (target.measured[:4], target.met) == ("-1.5", False)


@pytest.mark.parametrize(
    ("ece", "images", "average", "met"), [(0.06, 2000, "0.060", False), (0.06, 900, "0.030", True)]
)
def test_calibration_is_debiased_where_tests_are_small(ece, images, average, met):
    target = found(summary(**ONES, ece=ece, images=images))["average ECE"]
    assert (target.measured, target.met) == (average, met)


@pytest.mark.parametrize(("ordering", "met"), [("class-incremental", True), ("iid", False)])
def test_share_of_offline_training(ordering, met):
    made = {**summary(**ONES, ece=0.04, offline=0.62), "ordering": ordering}
    target = found(made)["final accuracy, of that of offline training at its best"]
    assert (target.measured, target.met) == ("0.968 (60.0 of 62.0%, 3 seeds)", met)


def test_linear_head():
    made = summary(**ONES, ece=0.04)
    made["learners"][LINEAR] = {"runs": [run(seed, [0, 0.55, 0.3], 0.1) for seed in range(3)]}
    targets = found(made)
    assert not targets["points ahead of a linear head on random features, at the worst test"].met
    assert targets["points ahead of a linear head on random features, at the end"].met


def test_offline_training_of_one_seed_is_beside_that_seed_alone():
    made = summary([[0, 0.5, 0.6], [0, 0.5, 0.9]], [[1, 0.5, 0.4]] * 2, [[1, 0.3, 0.5]] * 2, ece=0.04)
    made["learners"][OURS]["runs"][0]["offline"] = [{"accuracy": 0.8}]
    target = found(made)["final accuracy, of that of offline training at its best"]
    assert target.measured == "0.750 (60.0 of 80.0%, 1 seed)"


@pytest.mark.parametrize(
    ("theirs", "labels"), [([9, 0.4, 0.5], 60), ([0, 0.6, 0.5], 100), ([0, 0.4, 0.7], None), ([0, 0.5, 0.5], 100)]
)
def test_when_another_is_overtaken(theirs, labels):
    made = summary(**ONES, ece=0.04)
    made["learners"]["other"] = {"runs": [run(seed, theirs, 0.1) for seed in range(3)]}
    assert first_labels.overtakes(made, "other") == labels


def test_small_tests_show_both_values():
    rows = first_labels.learner_rows(summary(**ONES, ece=0.04, images=500))
    assert rows[0][4:6] == ["average ECE (raw)", "worst ECE (raw)"]
    assert rows[1][4:6] == ["0.010 (0.040)", "0.010 (0.040)"]


def test_page(tmp_path):
    runs, page = tmp_path / "runs", tmp_path / "docs" / "first-labels.md"
    page.parent.mkdir()
    with pytest.raises(ValueError, match="no finished run"):
        first_labels.write(runs, page)
    folder = runs / "first-labels-hand"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary(**ONES, ece=0.04)))
    page.write_text("# Mine\n\n<!-- runs -->\nstale\n<!-- end of runs -->\nmore of mine\n")
    first_labels.write(runs, page)
    text = page.read_text()
    assert text.startswith("# Mine\n\n<!-- runs -->\n|")
    assert "| hand | 100 | 60.0, 0.040 | 40.0, 0.040 | 50.0, 0.040 |  | nothing |" in text
    assert "\n## hand\n" in text
    assert "\ncoldstream run first-labels-hand --jobs 2 --set data.root=FOLDER\n" in text
    assert text.endswith("<!-- end of runs -->\nmore of mine\n")
    assert "stale" not in text
    assert "| CSSL() | 60.0 ± 0.0 |  |  | 0.040 | 0.040 |" in text
    assert "| full policy | 50.0 ± 0.0 | -10.0 ± 0.0 | -15.0 ± 0.0 | 0.040 | 0.040 |" in text
    assert (page.parent / "images/first-labels/first-labels-hand.png").stat().st_size > 5000
    made = summary(**ONES, ece=0.04)
    del made["learners"][LIGHT]
    made["learners"][PRETRAINED] = {"runs": [run(seed, [0, 0.55, 0.3], 0.1) for seed in range(3)]}
    for learner in made["learners"].values():
        learner["runs"].pop()
    (folder / "summary.json").write_text(json.dumps(made))
    first_labels.write(runs, page)
    assert "CSSL() is ahead of the linear head on pre-trained features from 100 labels on." in page.read_text()
    assert "| asked |" not in page.read_text()
    assert '--set data.root=FOLDER --set "seeds=[0, 1]"\n' in page.read_text()
    (folder / "summary.json").unlink()  # what was kept of it is enough
    written = page.read_text()
    first_labels.write(runs, page)
    assert page.read_text() == written
    page.write_text("without marks")
    with pytest.raises(ValueError, match="no lines"):
        first_labels.write(runs, page)
