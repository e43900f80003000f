"""Numbers of a run by hand, and the picture over capacities."""

import numpy as np
import pytest

from coldstream.data import Dataset
from coldstream.lab.results import averages, first_steps, transfer
from coldstream.report import plots
from coldstream.streams import make_stream


def event(step, **rows):
    """A test: for each class tested, how many images of it were taken for a, b and c."""
    known = [name for name in "abc" if any(row["abc".index(name)] is not None for row in rows.values())]
    table = [[row["abc".index(name)] for name in known] for row in rows.values()]
    return {"step": step, "classes": list(rows), "confusion": {"columns": known, "rows": table}}


def test_transfer_where_all_classes_are_tested():
    """B comes in the second of three batches, c in the last; a learner initialised on b knows it before."""
    events = [
        event(10, a=(8, 2, None), b=(5, 5, None), c=(6, 4, None)),
        event(20, a=(6, 4, None), b=(1, 9, None), c=(5, 5, None)),
        event(30, a=(7, 1, 2), b=(2, 6, 2), c=(0, 0, 10)),
    ]
    found = transfer(events, {"a": 1, "b": 11, "c": 30})
    assert found["forgetting"] == pytest.approx(((0.8 - 0.7) + (0.9 - 0.6)) / 2)
    assert found["backward_transfer"] == pytest.approx(((0.7 - 0.8) + (0.6 - 0.9)) / 2)
    assert found["forward_transfer"] == pytest.approx((0.5 + 0.0) / 2)


def test_transfer_where_only_classes_seen_are_tested():
    events = [event(10, a=(9, 1, None)), event(20, a=(5, 5, None), b=(0, 10, None))]
    found = transfer(events, {"a": 1, "b": 11})
    assert found == {
        "forgetting": pytest.approx(0.4),
        "backward_transfer": pytest.approx(-0.4),
        "forward_transfer": None,
    }
    everything_at_once = transfer(events[1:], {"a": 1, "b": 11})
    assert everything_at_once == dict.fromkeys(found)


def test_when_classes_come():
    data = Dataset("three", np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1), np.arange(6) // 2, ("a", "b", "c"))
    stream = make_stream(data, "class-incremental", 0, class_order=["c", "a", "b"])
    assert first_steps(stream) == {"c": 1, "a": 3, "b": 5}


def test_averages_are_over_the_seeds_that_have_a_number():
    runs = [{"seed": 0, "x": 1.0, "y": None, "z": None}, {"seed": 1, "x": 3.0, "y": 5.0, "z": None}]
    found = averages(runs)
    assert found == {
        "x": {"mean": 2.0, "sd": pytest.approx(2**0.5), "n": 2},
        "y": {"mean": 5.0, "sd": None, "n": 1},
    }


def learner(evict, capacity, **more):
    return {"kind": "cssl", "evict": evict, "capacity": capacity, **more}


def test_groups_of_one_capacity_are_left_out():
    settings = {
        "a": learner("uniform", "1KB"),
        "b": learner("reservoir", "1KB"),
        "c": learner("uniform", "9KB"),
        "d": learner("uniform", "9KB", replay=3),
        "e": learner("reservoir", None),
    }
    assert plots.same_but_capacity(settings) == {"evict uniform": ["a", "c"], "evict reservoir": ["b", "e"]}
    assert plots.same_but_capacity({name: settings[name] for name in "abd"}) == {}


@pytest.mark.parametrize(
    ("capacities", "omega", "x", "y", "scale", "ticks"),
    [
        (("1KB", "16KB"), (0.5, 0.9), [960, 16_000], [0.4, 0.8], "log", ["960 B", "16 KB"]),
        ((100, 200), (None, None), [30, 500], [0.3, 0.7], "log", ["30", "500"]),
        (("1KB", None), (0.5, 0.9), [960, 16_000], [0.4, 0.8], "log", ["960 B", "16 KB"]),
    ],
)
def test_what_is_drawn(tmp_path, monkeypatch, capacities, omega, x, y, scale, ticks):
    """Mean over two seeds against what the buffers held; the accuracy where there is no offline reference."""

    def run(seed, i):
        less = 0.2 * seed
        return {
            "seed": seed,
            "omega_per_event": None if omega[i] is None else omega[i] - less,
            "final_accuracy": (0.4, 0.8)[i] - less,
            "buffer": {"bytes": (960, 16_000)[i], "examples": (30, 500)[i]},
        }

    learners = {f"l{i}": {"runs": [run(0, i), run(1, i)]} for i in (0, 1)}
    settings = {f"l{i}": learner("uniform", capacities[i]) for i in (0, 1)}
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append(figure) or path)
    summary = {"name": "n", "ordering": "iid", "learners": learners}
    plots.capacity(tmp_path / "p.png", summary, settings, plots.same_but_capacity(settings))
    (axes,) = drawn[0].axes
    line = axes.lines[-1]
    assert line.get_xdata() == pytest.approx(x)
    assert line.get_ydata() == pytest.approx(y)
    assert axes.get_xscale() == scale
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ticks
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((y[0] - 0.1, y[1] + 0.1))
