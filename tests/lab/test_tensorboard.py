"""TensorBoard's own reader finds what metrics.jsonl says, from jobs in this process and in processes of their own."""

import json
import sys

import pytest

from coldstream.lab import Experiment, make_config, run_jobs

CHANGES = [
    "learner.model=linear",
    "learner.replay=2",
    "offline.enabled=false",
    "data.classes=3",
    "data.per_class=3",
    "data.test_per_class=10",
    "seeds=[0, 1]",
    "tensorboard=true",
]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_numbers_of_each_test(tmp_path, workers):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    experiment = Experiment.create(make_config({}, CHANGES), tmp_path / "run")
    assert not (tmp_path / "run" / "tensorboard").exists()
    run_jobs(experiment, workers)
    experiment.results()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for seed in (0, 1):
        folder = tmp_path / "run" / "tensorboard" / f"cold-start-{seed}"
        assert len(list(folder.iterdir())) == 1
        board = EventAccumulator(str(folder)).Reload()
        assert set(board.Tags()["scalars"]) == {"accuracy", "top5", "ece"}
        for number in ("accuracy", "top5", "ece"):
            logged = [(point.step, point.value) for point in board.Scalars(number)]
            expected = [(line["step"], line[number]) for line in lines if line["seed"] == seed]
            assert [step for step, _ in logged] == [3, 6, 9]
            assert logged == [(step, pytest.approx(value, rel=1e-6)) for step, value in expected]


def test_without_the_package_it_is_said_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ValueError, match="uv run --extra tensorboard"):
        Experiment.create(make_config({}, CHANGES), tmp_path / "run")
