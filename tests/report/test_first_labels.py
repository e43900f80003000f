"""Targets of the first labels, on numbers made by hand."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import finished_runs
from coldstream.lab.names import experiments_here
from coldstream.lab.yaml_files import read_config
from coldstream.report import first_labels
from coldstream.report.first_labels import FULL, LIGHT, LINEAR, OURS, PRETRAINED, FirstLabels
from coldstream.report.kept import KeptEvent, KeptPart, KeptResults, KeptRun


def run(seed, accuracies, ece, images=2000, offline=None):
    events = [
        KeptEvent(step=step, accuracy=accuracy, ece=ece, ece_debiased=ece - 0.03, images=images)
        for step, accuracy in zip((20, 60, 100), accuracies, strict=True)
    ]
    numbers = {"final_accuracy": accuracies[-1]} | ({} if offline is None else {"offline_accuracy": offline})
    return KeptRun(seed=seed, numbers=numbers, events=events)


def made(ours, light, full, *, ordering="class-incremental", others=None, **settings):
    learners = {
        name: [run(seed, accuracies, **settings) for seed, accuracies in enumerate(by_seed)]
        for name, by_seed in {OURS: ours, LIGHT: light, FULL: full, **(others or {})}.items()
    }
    part = KeptPart(ordering=ordering, examples=100, learners=learners)
    return FirstLabels(KeptResults(experiment="first-labels-hand", environment=None, parts={"": part}))


ONES = {"ours": [[0.0, 0.5, 0.6]] * 3, "light": [[1.0, 0.5, 0.4]] * 3, "full": [[1.0, 0.3, 0.5]] * 3}


def targets(results):
    return {target.text: target for target in first_labels.targets(results)}


WORST = "points ahead of the better fixed policy, at the deciding test"
SHARE = "final accuracy, as a share of the best offline training"
POLICIES = {name: ONES[name] for name in ("light", "full")}


def test_the_better_policy_is_chosen_test_by_test_and_early_tests_do_not_count():
    results = made(**ONES, ece=0.04)
    np.testing.assert_array_equal(results.better_policy(), [[0.5, 0.5]] * 3)
    assert (targets(results)[WORST].measured, str(targets(results)[WORST].verdict)) == ("+0.0 ± 0.0", "confirmed")
    assert targets(results)["points ahead of crops and flips, at the end"].measured == "+20.0 ± 0.0"


def test_behind_by_more_than_a_point_is_refuted_beyond_the_interval():
    sure = targets(made([[1, 0.48, 0.6]] * 3, **POLICIES, ece=0.04))[WORST]
    assert str(sure.verdict) == "refuted"
    unsure = targets(made([[1, a, 0.6] for a in (0.44, 0.48, 0.52)], **POLICIES, ece=0.04))[WORST]
    half = stats.t.ppf(0.975, 2) * 0.04 / np.sqrt(3)
    assert (unsure.measured, unsure.verdict.outcome) == (f"-2.0 ± {100 * half:.1f}", "not decided")
    single = targets(made([[1, 0.48, 0.6]], [[1.0, 0.5, 0.4]], [[1.0, 0.3, 0.5]], ece=0.04))
    assert {str(target.verdict) for target in single.values()} == {"one seed: not decided"}


def test_the_test_that_decides_is_shown():
    """Not the one furthest behind, about which nothing is decided."""
    ours = [[1, a, b] for a, b in ((0.35, 0.484), (0.47, 0.485), (0.59, 0.486))]
    target = targets(made(ours, [[1.0, 0.5, 0.5]] * 3, [[1.0, 0.3, 0.3]] * 3, ece=0.04))[WORST]
    assert (target.measured[:4], str(target.verdict)) == ("-1.5", "refuted")


def test_the_overview_shows_apart_what_is_missed_and_what_is_not_decided():
    """Behind in the mean is not missed: at the test that decides one run is behind for sure, the other perhaps."""
    sure, unsure = ([[1, a, 0.6] for a in at_60] for at_60 in ((0.48, 0.48, 0.48), (0.44, 0.48, 0.52)))
    table = first_labels.overview([made(ours, **POLICIES, ece=0.04) for ours in (sure, unsure)])
    assert table[0][-3:] == ["targets confirmed", "not decided", "targets missed"]
    assert [line[-3:] for line in table[1:]] == [
        ["4 of 5", "none", f"{WORST}: -2.0 ± 0.0"],
        ["4 of 5", "1", "none"],
    ]


@pytest.mark.parametrize(
    ("ece", "images", "average", "verdict"), [(0.06, 2000, "0.060", "refuted"), (0.06, 900, "0.030", "confirmed")]
)
def test_calibration_is_debiased_where_tests_are_small(ece, images, average, verdict):
    target = targets(made(**ONES, ece=ece, images=images))["average ECE"]
    assert (target.measured, str(target.verdict)) == (f"{average} ± 0.000", verdict)


@pytest.mark.parametrize(("ordering", "verdict"), [("class-incremental", "confirmed"), ("iid", "refuted")])
def test_share_of_offline_training(ordering, verdict):
    target = targets(made(**ONES, ece=0.04, offline=0.62, ordering=ordering))[SHARE]
    assert (target.measured, str(target.verdict)) == ("0.968 (60.0 of 62.0%, 3 seeds)", verdict)


def test_linear_head():
    results = targets(made(**ONES, ece=0.04, others={LINEAR: [[0, 0.55, 0.3]] * 3}))
    target = "points ahead of a linear head on random features, at the {}"
    assert str(results[target.format("deciding test")].verdict) == "refuted"
    assert str(results[target.format("end")].verdict) == "confirmed"


def test_offline_training_of_one_seed_is_beside_that_seed_alone():
    results = made([[0, 0.5, 0.6], [0, 0.5, 0.9]], [[1, 0.5, 0.4]] * 2, [[1, 0.3, 0.5]] * 2, ece=0.04)
    results.part.learners[OURS][0].numbers["offline_accuracy"] = 0.8
    target = targets(results)[SHARE]
    assert (target.measured, str(target.verdict)) == ("0.750 (60.0 of 80.0%, 1 seed)", "one seed: not decided")


@pytest.mark.parametrize(
    ("theirs", "labels"), [([9, 0.4, 0.5], 60), ([0, 0.6, 0.5], 100), ([0, 0.4, 0.7], None), ([0, 0.5, 0.5], 100)]
)
def test_when_another_is_overtaken(theirs, labels):
    assert made(**ONES, ece=0.04, others={"other": [theirs] * 3}).overtakes("other") == labels


def test_small_tests_show_both_values():
    table = first_labels.learner_table(made(**ONES, ece=0.04, images=500))
    assert table[0][4:6] == ["average ECE (raw)", "worst ECE (raw)"]
    assert table[1][4:6] == ["0.010 (0.040)", "0.010 (0.040)"]


def finished(path, learners, seeds):
    """A run with tests after 20, 60 and 100 labels."""
    units = {
        name: [
            finished_runs.unit(
                seed,
                {
                    None: [
                        finished_runs.event(step, a, ece=0.04, images=2000)
                        for step, a in zip((20, 60, 100), accuracies, strict=True)
                    ]
                },
            )
            for seed in seeds
        ]
        for name, accuracies in learners.items()
    }
    settings = {"seeds": list(seeds), "learners": {name: {} for name in learners}}
    return finished_runs.write(path, units, settings)


def test_page(tmp_path, monkeypatch):
    runs, page = tmp_path / "runs", tmp_path / "docs" / "first-labels.md"
    page.parent.mkdir()
    with pytest.raises(ValueError, match="no finished run"):
        first_labels.write(runs, page)
    folder = runs / "first-labels-hand"
    finished(folder, {OURS: [0.0, 0.5, 0.6], LIGHT: [1.0, 0.5, 0.4], FULL: [1.0, 0.3, 0.5]}, range(3))
    page.write_text("# Mine\n\n<!-- runs -->\nstale\n<!-- end of runs -->\nmore of mine\n")
    first_labels.write(runs, page)
    text = page.read_text()
    assert text.startswith("# Mine\n\n<!-- runs -->\n|")
    assert "| hand | 20 | 60.0, 0.040 | 40.0, 0.040 | 50.0, 0.040 |  | 5 of 5 | none | none |" in text
    assert "\n## hand\n" in text
    assert "\ncoldstream run first-labels-hand --jobs 2 --set data.root=FOLDER\n" in text
    assert text.endswith("<!-- end of runs -->\nmore of mine\n")
    assert "stale" not in text
    assert f"| {OURS} | 60.0 ± 0.0 |  |  | 0.040 | 0.040 |" in text
    assert "| full policy | 50.0 ± 0.0 | -10.0 ± 0.0 | -15.0 ± 0.0 | 0.040 | 0.040 |" in text
    assert (
        "9 of 9 runs were computed with other code than today's: ColdStart(), crops and flips, full policy." in text
    )
    assert (page.parent / "images/first-labels/first-labels-hand.png").stat().st_size > 5000
    (folder / "summary.json").unlink()  # what was kept of it is enough
    first_labels.write(runs, page)
    assert page.read_text() == text
    finished(folder, {OURS: [0.0, 0.5, 0.6], FULL: [1.0, 0.3, 0.5], PRETRAINED: [0, 0.55, 0.3]}, range(2))
    first_labels.write(runs, page)
    text = page.read_text()
    assert f"{OURS} is ahead of the linear head on pre-trained features from 100 labels on." in text
    assert "| target |" not in text
    assert '--set data.root=FOLDER --set "seeds=[0, 1]"\n' in text
    page.write_text("without marks")
    with pytest.raises(ValueError, match="no lines"):
        first_labels.write(runs, page)


def test_experiments_have_the_learner_that_the_page_is_about(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    files = [file for name, file in experiments_here().items() if name.startswith(first_labels.PREFIX)]
    assert len(files) == 14
    assert all(OURS in read_config(file)["learners"] for file in files)
