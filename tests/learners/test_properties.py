"""The paper's table of algorithms, as the learners themselves tell it."""

import sys

import pytest

from coldstream.cli import main
from coldstream.learners import LEARNERS, DeepSLDA, ExStream
from coldstream.learners.properties import NETWORKS, PAPER, built, properties_table


@pytest.fixture(scope="module")
def rows():
    return properties_table()


@pytest.mark.parametrize(
    ("kind", "network", "parameters", "head"),
    [(DeepSLDA, "ImageNet", 11_689_512, 513_000), (ExStream, "CIFAR-100", 11_220_132, 51_300)],
)
def test_what_a_linear_classifier_on_frozen_features_freezes(kind, network, parameters, head):
    learner = built(kind, **NETWORKS[network])
    assert learner.parameters() == parameters
    assert learner.frozen_share() == (parameters - head) / parameters


def test_a_row_for_every_learner(rows):
    table = {row[0]: row[1:] for row in rows[1:]}
    assert table.keys() == LEARNERS.keys()
    assert table["deep-slda"] == ["yes", "95.6%", "99.5%", "95%", "nothing", "each"]
    assert table["exstream"] == ["yes", "95.6%", "99.5%", "95%", "prototypes", "each"]
    assert table["remind"] == ["yes", "55.2%", "57.5%", "75%", "codes", "each"]
    assert table["cssl"] == ["no", "0.0%", "0.0%", "0%", "images", "each"]
    assert table["er"][3] == ""


def test_what_the_paper_says_of_base_initialisation_and_replay_holds(rows):
    for name, base, *_, replays, _ in rows[1:]:
        if name in PAPER:
            assert (base == "yes", replays != "nothing") == (PAPER[name].base_init, PAPER[name].replay)


def test_the_command_prints_it(rows, monkeypatch, capsys):
    monkeypatch.setattr("coldstream.learners.properties.properties_table", lambda: rows)
    monkeypatch.setattr(sys, "argv", ["coldstream", "learners"])
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr().out
    assert stopped.value.code == 0
    for row in rows:
        assert all(cell in printed for cell in row)
