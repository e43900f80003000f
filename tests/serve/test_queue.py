"""The queue of next images follows the project's policy; the promise counts audited labels and remaining images."""

import time

import pytest

from coldstream.metrics.promise import needed, promise
from coldstream.serve import knows, looking
from coldstream.serve.choosing import POLICIES
from coldstream.serve.errors import Refused
from coldstream.serve.project import Project
from live_project import opened, wait
from serving import label_of, write_pictures

WHYS = {"random": {"random"}, "margin": {"doubt"}, "coverage": {"coverage"}, "spread": {"doubt"}}


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_next_images_are_chosen_by_the_policy(tmp_path, policy):
    photos = write_pictures(tmp_path / "photos", 40)
    with opened(tmp_path / "project", photos, policy=policy, audit=0.0) as project:
        for id, record in list(project.records.images.items())[:8]:
            project.label(id, label_of(record.name))
        wait(project)
        project.queue.wake()
        until(lambda: project.queue._ready_version == project.live.answering.version)
        with project.lock:
            choices = project.queue.take(6, ())
        assert len({choice.image for choice in choices}) == 6
        assert all(choice.image in project.records.unlabelled for choice in choices)
        assert {choice.why for choice in choices} <= WHYS.get(policy, {"doubt", "coverage"})


def test_an_unknown_policy_is_refused_before_there_is_a_project(tmp_path):
    with pytest.raises(ValueError, match="policy of the next image 'margins'"):
        Project(tmp_path / "project", "photos", None, policy="margins")
    assert not (tmp_path / "project").exists()


def test_the_promise_is_about_the_remaining_images(tmp_path):
    photos = write_pictures(tmp_path / "photos", 160)
    wanted = 0.8
    with opened(tmp_path / "project", photos, audit=1.0) as project:
        for number in range(60):
            with project.lock:
                (choice,) = project.queue.take(1, ())
            assert choice.audit
            project.label(choice.image, label_of(project.records.images[choice.image].name))
            if number == 5:
                wait(project)
                with pytest.raises(Refused, match="not enough audited labels yet"):
                    looking.accept(project, wanted)
        wait(project)
        tests = knows.tests(project.records)
        audited = [test for test in tests if test.audit and test.guess is not None]
        assert len(audited) >= needed(wanted)
        project.scores.score(project.live.answering, project.records.unlabelled.all())
        remaining = [project.scores.score_of(id).confidence for id in project.records.unlabelled.all()]
        assert len(remaining) == 100
        expected = promise(
            [test.confidence for test in audited],
            [test.guess == test.label for test in audited],
            wanted,
            remaining=remaining,
        )
        shown = knows.promise_of(project.records, project.scores, tests, wanted)
        assert (shown["threshold"], shown["remaining"]) == (expected.threshold, 100)
        assert expected.threshold is not None
        assert shown["count"] == sum(one >= expected.threshold for one in remaining)
        accepted = looking.accept(project, wanted)
        assert accepted["count"] == shown["count"]
        assert knows.audited_now(project.records, knows.tests(project.records)) == []
