"""Results that are kept: what is written is read again, and which code they are of."""

import json
from pathlib import Path

import pytest

from coldstream.lab.environment import describe_environment
from coldstream.lab.records import Environment
from coldstream.report import kept
from coldstream.report.kept import KeptEvent, KeptPart, KeptResults, KeptRun, summary_of

DOCS = Path(__file__).parents[2] / "docs" / "results"


def run(seed, *, code=None, **numbers):
    return KeptRun(seed=seed, numbers=numbers, events=[KeptEvent(step=10, accuracy=0.5)], code=code)


RESULTS = KeptResults(
    experiment="T:compress",
    scale="lab",
    date="2025-01-02",
    environment={"commit": "0123456789", "threads": 1, "torch": "2.7"},
    parts={
        'one, "quoted"': KeptPart(
            settings={"A": "0123"},
            examples=20,
            kinds={"A": "cssl", "B": "cssl"},
            learners={
                "A": [run(0, final_accuracy=0.5, average_ece=0.1, code="abc"), run(3, final_accuracy=0.7)],
                "B": [run(0, final_accuracy=0.25)],
            },
        ),
        "two": KeptPart(settings={"A": "4567"}, examples=30, learners={"A": [run(1, final_accuracy=1.0)]}),
    },
)


def test_what_is_kept_is_read_again(tmp_path):
    assert kept.read_kept("T:compress", "lab", tmp_path / "kept") is None
    kept.keep(RESULTS, tmp_path / "kept")
    assert kept.read_kept("T:compress", "lab", tmp_path / "kept") == RESULTS
    assert kept.read_kept("T:compress", "paper", tmp_path / "kept") is None
    lines = (tmp_path / "kept" / "T-compress-lab.json").read_text().splitlines()
    assert sum('"seed"' in line for line in lines) == 4
    assert all(line.count('"seed"') <= 1 for line in lines)
    assert sum('"code": null' in line for line in lines) == 3


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "T-compress-lab.json").write_text('{"experiment": ')
    with pytest.raises(ValueError, match="T-compress-lab.json is not a KeptResults"):
        kept.read_kept("T:compress", "lab", tmp_path)


def test_values():
    part, values = 'one, "quoted"', RESULTS.values
    assert values == {
        (part, "A", "final_accuracy"): {0: 0.5, 3: 0.7},
        (part, "A", "average_ece"): {0: 0.1},
        (part, "B", "final_accuracy"): {0: 0.25},
        ("two", "A", "final_accuracy"): {1: 1.0},
    }
    both = summary_of(values, part, "A", "final_accuracy")
    assert (both.mean, both.sd, both.n) == (pytest.approx(0.6), pytest.approx(0.02**0.5), 2)
    assert summary_of(values, part, "B", "omega_final") is None
    assert summary_of(values, "three", "A", "final_accuracy") is None
    assert RESULTS.seeds == [0, 1, 3]


def test_code_that_differs_is_named(monkeypatch):
    monkeypatch.setattr(kept, "code_today", lambda kind: "today")

    def note(*codes, reference=False):
        learners = {name: [run(0, code=code)] for name, code in zip("ABC", codes, strict=False)}
        if reference:
            learners["offline"] = [KeptRun(seed=0, numbers={}, events=[])]
        part = KeptPart(examples=1, kinds=dict.fromkeys("ABC", "cssl"), learners=learners)
        return kept.code_note(RESULTS.model_copy(update={"parts": {"": part}}))

    assert note("today", "today", reference=True) == ""
    assert note(None, None) == "The code hash of all 2 runs was not recorded."
    assert note("today", "older") == "1 of 2 runs were computed with other code than today's: B."
    assert note(None, "older", "today") == (
        "The code hash of 1 of 3 runs was not recorded. 1 of 3 runs were computed with other code than today's: B."
    )


def test_code_of_the_users_is_not_imported_for_a_page(monkeypatch):
    monkeypatch.setattr(kept, "code_today", lambda kind: pytest.fail(f"{kind} was imported"))
    part = KeptPart(examples=1, kinds={"A": "mine:Learner"}, learners={"A": [run(0, code="x")]})
    assert kept.code_note(RESULTS.model_copy(update={"parts": {"": part}})) == ""


def test_machines_are_kept_with_each_run(tmp_path):
    def note(*machines, **changes):
        runs = [run(seed, x=0.5).model_copy(update={"machine": machine}) for seed, machine in enumerate(machines)]
        part = KeptPart(examples=1, learners={"A": runs} if runs else {})
        results = RESULTS.model_copy(update={"parts": {"": part}, **changes})
        kept.keep(results, tmp_path)
        assert kept.read_kept("T:compress", "lab", tmp_path) == results
        return kept.machine_note(results)

    assert note(None, None) == "Processor: not recorded."
    assert note("EPYC, AVX512, 1 thread") == "Processor: EPYC, AVX512, 1 thread."
    both = "Processor: EPYC, AVX512, 1 thread (1 of 2 runs); not recorded (1 of 2 runs)."
    assert note("EPYC, AVX512, 1 thread", None) == both
    assert note(environment=None) == "Processor: not recorded."
    now = dict(describe_environment())
    assert note(environment=now) == f"Processor: {Environment.model_validate(now).hardware}."


def test_the_code_of_today_is_that_of_a_learner():
    assert kept.code_today("cssl") != kept.code_today("deep-slda")
    assert kept.code_today("cssl") == kept.code_today("cssl")


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.json")), ids=lambda path: path.stem)
def test_the_kept_files_are_in_the_format_in_which_they_are_written(path, tmp_path):
    results = KeptResults.model_validate_json(path.read_bytes())
    kept.keep(results, tmp_path)
    assert (tmp_path / path.name).read_text() == path.read_text()
    assert all(
        "code" in run
        for part in json.loads(path.read_text())["parts"].values()
        for runs in part["learners"].values()
        for run in runs
    )
