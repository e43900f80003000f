"""Tables, pictures and the page of a finished run, with and without tasks."""

from pathlib import Path

import pytest

import coldstream
from coldstream.report import run_plots, run_tables
from coldstream.report.compare import compare_table, setting_changes
from coldstream.report.pages import write_report
from finished_runs import event, unit, write

SETTINGS = {"seeds": [0, 1], "learners": {"A": {"capacity": 10}, "B": {"capacity": 20}}}


def one_task(path, *, better=0.0):
    """Two learners, two seeds, tests after 10 and 20 images; B is better by 0.1, without spread."""
    learners = {
        name: [
            unit(
                seed,
                {None: [event(10, 0.5 + lead), event(20, 0.6 + lead + 0.02 * seed)]},
                offline={None: [0.8, 0.8]},
                omega_per_event=0.75,
                forgetting=0.05,
            )
            for seed in (0, 1)
        ]
        for name, lead in (("A", 0.0 + better), ("B", 0.1 + better))
    }
    return write(path, learners, SETTINGS)


def two_tasks(path):
    """Task x is tested when it ends and at the end, task y at the end; offline for each task."""
    tasks = {"x": [event(10, 0.9, task="x"), event(20, 0.7, task="x")], "y": [event(20, 0.8, task="y")]}
    learners = {
        name: [
            unit(0, tasks, offline={"x": [0.95], "y": [0.85]}, offline_accuracy=0.9, forgetting=0.2, buffer=buffer)
        ]
        for name, buffer in (("A", (10, 1000)), ("B", None))
    }
    settings = {"seeds": [0], "tasks": {"x": {"name": "digits"}, "y": {"name": "digits"}}}
    return write(path, learners, {**settings, "learners": {"A": {}, "B": {}}})


@pytest.fixture(params=[one_task, two_tasks])
def run(request, tmp_path):
    return request.param(tmp_path / "made-up")


def test_learners(tmp_path):
    run = one_task(tmp_path / "r")
    header, *lines = run_tables.learner_table(run)
    assert header[:3] == ["learner", "final accuracy", "top-5"]
    assert header[-4:] == ["ms per example", "buffer", "parameters", "seeds"]
    assert lines[0][:2] == ["A", "0.610 ± 0.014"]
    assert lines[1][:2] == ["B", "0.710 ± 0.014"]
    assert lines[0][-4:] == ["2.0", "10 / 1,000 B", "1,234", "2"]
    assert run_tables.learner_table(run, short=True)[0] == ["learner", "accuracy", "Ω_all", "ECE", "ms", "seeds"]


def test_learners_with_tasks(tmp_path):
    table = run_tables.learner_table(two_tasks(tmp_path / "r"), short=True)
    assert table == [
        ["learner", "x", "y", "mean", "forgetting", "ms", "seeds"],
        ["A", "0.700", "0.800", "0.750", "0.200", "2.0", "1"],
        ["B", "0.700", "0.800", "0.750", "0.200", "2.0", "1"],
        ["offline", "0.950", "0.850", "0.900", "–", "–", "–"],
    ]
    line = run_tables.learner_table(two_tasks(tmp_path / "r"))[2]
    assert line[-4:] == ["2.0", "–", "1,234", "1"]


def test_tasks(tmp_path):
    table = run_tables.task_table(two_tasks(tmp_path / "r").results)
    assert table[0][:2] == ["learner", "task"]
    assert table[1] == ["A", "x", "0.000", "0.700", "–", "0.950", "–"]
    assert [line[:2] for line in table[1:]] == [["A", "x"], ["A", "y"], ["B", "x"], ["B", "y"]]


def test_events(tmp_path):
    results = one_task(tmp_path / "r").results
    table = run_tables.event_table(results, results.learners["A"].units[0])
    assert table[1:] == [
        ["2", "10", "50.0%", "80.0%", "0.625", "0.100", "0.070", "20"],
        ["2", "20", "60.0%", "80.0%", "0.750", "0.100", "0.070", "20"],
    ]


def test_events_of_tasks_are_in_the_order_of_the_stream(tmp_path):
    results = two_tasks(tmp_path / "r").results
    table = run_tables.event_table(results, results.learners["A"].units[0])
    assert [line[:4] for line in table] == [
        ["task", "classes", "images seen", "accuracy"],
        ["x", "2", "10", "90.0%"],
        ["x", "2", "20", "70.0%"],
        ["y", "2", "20", "80.0%"],
    ]
    assert [line[4] for line in table[1:]] == ["–", "95.0%", "85.0%"]


def test_a_unit(tmp_path):
    run = one_task(tmp_path / "r")
    lines = dict(run_tables.unit_table(run.results, run.results.learners["A"].units[0], run.timing.units["A"][0]))
    assert lines["final accuracy"] == "60.0%"
    assert lines["forgetting (mean fall of a class from its best)"] == "0.050"
    assert lines["time per example"] == "2.0 ms"
    assert lines["replay buffer"] == "10 examples, 1,000 bytes"
    assert "forward transfer (accuracy on a class before it comes)" not in lines
    run = two_tasks(tmp_path / "t")
    lines = dict(run_tables.unit_table(run.results, run.results.learners["B"].units[0], run.timing.units["B"][0]))
    assert lines["final accuracy, mean over tasks"] == "75.0%"
    assert lines["forgetting (mean fall of a task since its best test after its end)"] == "0.200"
    assert "replay buffer" not in lines


def test_confusion_is_in_the_order_of_the_test():
    test = event(1, 0.5, classes=("b", "a", "new"), predicted=("a", "b"), counts=[[1, 3], [4, 0], [2, 0]])
    assert run_tables.confusion_table(test.confusion) == [
        ["truth \\ guess", "b", "a"],
        ["b", "3", "1"],
        ["a", "·", "4"],
        ["new", "·", "2"],
    ]


def test_report(run):
    page = write_report(run.folder.path)
    written = {path.name for path in run.folder.path.iterdir()}
    pictures = {"accuracy", "reliability", "coverage", "confusion"} | ({"capacity"} & {p[:-4] for p in written})
    assert {f"{name}.{kind}" for name in pictures for kind in ("png", "svg")} <= written
    assert {"results.md", "results.csv", "results.tex"} <= written
    text = page.read_text()
    assert text.count("data:image/png;base64,") == len(pictures)
    for name, one in run.results.units:
        assert f"<h2>{name}, seed {one.seed}</h2>" in text
    assert ("<h2>Tasks</h2>" in text) == run.results.has_tasks
    assert "kind: cold-start" in text
    assert (run.folder.path / "results.md").read_text().count("\n") == len(run_tables.learner_table(run)) + 1


def test_text_is_escaped(tmp_path):
    learners = {"<A>": [unit(0, {None: [event(10, 0.5)]})]}
    run = write(tmp_path / "x", learners, {"learners": {"<A>": {}}})
    text = write_report(run.folder.path).read_text()
    assert "<A>" not in text
    assert "&lt;A&gt;, seed 0" in text


def panels(monkeypatch, draw, *arguments):
    figures = []
    monkeypatch.setattr("coldstream.report.plots.save", lambda figure, path, **options: figures.append(figure))
    draw(*arguments)
    return figures[0].axes


def lines_of(axes):
    return {line.get_label(): ([*line.get_xdata()], [*line.get_ydata()]) for line in axes.lines}


def test_accuracy_has_a_panel_a_task(tmp_path, monkeypatch):
    (only,) = panels(monkeypatch, run_plots.accuracy, tmp_path, one_task(tmp_path / "r").results)
    lines = lines_of(only)
    assert lines["A, streamed"] == ([10, 20], [pytest.approx(50), pytest.approx(61)])
    assert lines["trained offline"] == ([10, 20], [80, 80])
    first, second = panels(monkeypatch, run_plots.accuracy, tmp_path, two_tasks(tmp_path / "t").results)
    assert lines_of(first)["A, streamed"] == ([10, 20], [90, 70])
    assert lines_of(second)["A, streamed"] == ([20], [80])
    assert first.get_ylim() == second.get_ylim()
    (level,) = [each.get_segments() for each in first.collections if each.get_label() == "trained offline"]
    assert level[0].tolist() == [[0, pytest.approx(95)], [20, pytest.approx(95)]]


def test_capacities_are_drawn_where_buffers_were_filled(tmp_path, monkeypatch):
    run = one_task(tmp_path / "r")
    groups = run_plots.same_but_capacity(SETTINGS["learners"])
    assert groups == {"streamed": ["A", "B"]}
    (axes,) = panels(monkeypatch, run_plots.capacity, tmp_path, run.results, SETTINGS["learners"], groups)
    assert lines_of(axes)["streamed"] == ([10, 10], [0.75, 0.75])


def test_compare(tmp_path):
    one, other = one_task(tmp_path / "one"), one_task(tmp_path / "other", better=0.05)
    assert setting_changes(one.folder.path, other.folder.path) == ["name: 'one' → 'other'"]
    table = compare_table(one.folder.path, other.folder.path)
    assert table[1] == ["A", "final accuracy", "0.6100", "0.6600", "+0.0500 ± 0.0000 (2 seeds)"]
    assert table[2][:2] + table[2][-1:] == ["A", "omega per event", "+0.0000 ± 0.0000 (2 seeds, not decided)"]


def test_compare_one_seed_decides_nothing(tmp_path):
    for name, accuracy, seed in (("one", 0.5, 0), ("other", 0.75, 0), ("third", 0.75, 3)):
        write(
            tmp_path / name,
            {"A": [unit(seed, {None: [event(20, accuracy)]})]},
            {"learners": {"A": {}}, "seeds": [seed]},
        )
    table = compare_table(tmp_path / "one", tmp_path / "other")
    assert table[1][-1] == "+0.2500 (1 seed, not decided)"
    assert compare_table(tmp_path / "one", tmp_path / "third")[1][-1] == "no seed in common"
    with pytest.raises(ValueError, match="no finished run in"):
        setting_changes(tmp_path / "one", tmp_path / "nowhere")


def test_templates_are_in_the_package():
    names = {path.name for path in Path(coldstream.__path__[0], "report", "templates").iterdir()}
    assert names >= {
        "run.html.j2",
        "paper.md.j2",
        "paper_experiment.md.j2",
        "paper_section.md.j2",
        "first_labels.md.j2",
    }
