"""The mirror of a Label Studio project, against a project that loses, repeats and reorders its webhooks."""

from dataclasses import replace
from random import Random

import pytest

from coldstream.serve.label_studio.mapping import Annotation, decide
from coldstream.serve.label_studio.mirror import KIND, WHO, Mirror, State


class Event:
    """An event as the journal gives it."""

    def __init__(self, seq, who, kind, body):
        self.seq, self.who, self.kind, self.body = seq, who, kind, body


class Events:
    """A journal in memory: one event per key."""

    def __init__(self):
        self.events, self.keys = [], set()
        self.mirror = Mirror()
        self.append(KIND, {"connect": {"uid": "1.1795125379", "project": 1, "control": None}})

    def append(self, kind, body, key=None, who=WHO):
        if key is not None and key in self.keys:
            return
        self.keys.add(key)
        self.events.append(Event(len(self.events) + 1, who, kind, body))
        self.mirror.take(self.events[-1])

    def tell(self, annotations, since=None):
        for key, body in [*self.mirror.news(annotations, since)]:
            self.append(KIND, body, key)

    def delete(self, **what):
        self.append(KIND, {"deleted": what})

    def place(self, task, image):
        self.append(KIND, {"task": {"id": task, "image": image, "address": f"of {image}"}})

    def apply(self):
        for image in self.mirror.differences():
            state, _ = self.mirror.difference(image)
            kind = "label" if state.label else "skip" if state.skipped else "unlabel"
            self.append(kind, {"image": image} | ({"label": state.label} if state.label else {}))
            assert self.mirror.applied_at[image] == self.mirror.seq
        assert self.mirror.differences() == []


def at(second, number=1, task=7, label="cat", **changed):
    return Annotation(number, task, f"2026-01-01T00:{second:02}", label, **changed)


@pytest.fixture
def events():
    events = Events()
    events.place(7, "image")
    return events


def test_a_label_an_edit_a_skip_and_a_delete(events):
    for annotation, expected in [
        (at(1), State("cat")),
        (at(2, label="dog"), State("dog")),
        (at(3, label=None, skipped=True), State(skipped=True)),
        (at(4), State("cat")),
    ]:
        events.tell([annotation])
        assert events.mirror.state("image") == expected
        events.apply()
        assert events.mirror.applied["image"] == expected
    events.delete(annotations=[1])
    assert events.mirror.state("image") == State()
    events.apply()
    assert [event.kind for event in events.events if event.kind != KIND] == [
        *["label"] * 2,
        "skip",
        "label",
        "unlabel",
    ]


def test_a_repeated_or_late_webhook_says_nothing_new(events):
    events.tell([at(2, label="dog")])
    before = len(events.events)
    events.tell([at(2, label="dog"), at(1)])
    assert len(events.events) == before
    events.delete(annotations=[1])
    events.tell([at(2, label="dog"), at(1)])
    assert events.mirror.state("image") == State()


def test_a_deleted_id_may_come_again(events):
    events.tell([at(1)])
    events.delete(annotations=[1])
    events.tell([at(2, label="dog")])
    assert events.mirror.state("image") == State("dog")


def test_a_listing_brings_back_what_was_wrongly_deleted_but_not_what_was_deleted_since(events):
    events.tell([at(1)])
    before = events.mirror.seq
    events.delete(annotations=[1])
    events.tell([at(1)], since=before)
    assert events.mirror.state("image") == State()
    events.tell([at(1)], since=events.mirror.seq)
    assert events.mirror.state("image") == State("cat")


def test_a_listing_corrects_what_an_annotation_means(events):
    """As when the label config names another control."""
    events.tell([at(1)])
    events.tell([at(1, label="dog")])
    assert events.mirror.state("image") == State("cat")
    events.tell([at(1, label="dog")], since=events.mirror.seq)
    events.tell([at(1)], since=events.mirror.seq)
    events.tell([at(1, label="dog")], since=events.mirror.seq)
    assert events.mirror.state("image") == State("dog")


def test_the_label_of_another_annotator_remains(events):
    events.tell([at(1), at(2, number=2, label="dog")])
    events.apply()
    events.delete(annotations=[2])
    assert events.mirror.difference("image") == (State("cat"), events.mirror.seq)


def test_our_own_predictions_are_not_labels(events):
    events.tell([at(1, by_model=True)])
    assert events.mirror.state("image") == State()
    assert events.mirror.differences() == []
    assert events.mirror.unlabelled() == []


def test_an_annotation_waits_for_its_image():
    events = Events()
    events.tell([at(1)])
    assert events.mirror.differences() == []
    assert events.mirror.tasks() == {7}
    events.place(7, "image")
    assert events.mirror.difference("image") == (State("cat"), events.mirror.seq)


def test_one_image_in_two_tasks(events):
    events.place(8, "image")
    events.tell([at(2), at(1, number=2, task=8, label="dog")])
    assert events.mirror.state("image") == State("cat")
    events.delete(tasks=[7])
    assert events.mirror.state("image") == State("dog")


def test_a_task_gets_another_image(events):
    events.tell([at(1)])
    events.apply()
    events.place(7, "other")
    events.apply()
    assert events.mirror.applied == {"image": State(), "other": State("cat")}
    events.delete(tasks=[7])
    events.apply()
    assert events.mirror.applied == {"image": State(), "other": State()}
    assert events.mirror.tasks() == set()


def test_labels_of_others_are_not_taken_for_ours(events):
    events.append("label", {"image": "image", "label": "dog"}, who="person")
    assert events.mirror.applied == {}
    events.tell([at(1, label="dog")])
    assert events.mirror.differences() == ["image"]


class Project:
    """A Label Studio project that gives deleted ids to new annotations."""

    def __init__(self, random):
        self.random, self.now, self.annotations = random, 0, {}

    def act(self):
        """Do one thing; return its webhook."""
        self.now += 1
        random, stamp = self.random, f"2026-01-01T{self.now:06}"
        known = [*self.annotations.values()]
        choice = random.random()
        if known and choice < 0.25:
            gone = random.choice(known)
            del self.annotations[gone.id]
            return {"deleted": [gone.id]}
        label = random.choice(["cat", "dog", None])
        changed = {"label": label, "updated": stamp, "skipped": label is None and random.random() < 0.7}
        changed["by_model"] = random.random() < 0.1
        if known and choice < 0.5:
            annotation = replace(random.choice(known), **changed)
        else:
            number = max(self.annotations, default=0) + 1
            annotation = Annotation(id=number, task=random.randrange(1, 6), **changed)
        self.annotations[annotation.id] = annotation
        return {"annotation": annotation}

    def truth(self, image):
        chosen = decide([one for one in self.annotations.values() if one.task % 3 == image])
        return State() if chosen is None else State(chosen.label, chosen.skipped)


def deliver(events, webhook):
    if "deleted" in webhook:
        if known := events.mirror.known(webhook["deleted"]):
            events.delete(annotations=known)
    else:
        events.tell([webhook["annotation"]])


def reconcile(events, listing, since):
    events.tell(listing, since)
    listed = {one.id for one in listing}
    if missing := events.mirror.missing(events.mirror.tasks(), listed, since):
        events.delete(annotations=missing)


@pytest.mark.parametrize("seed", range(200))
def test_whatever_webhooks_do_a_listing_makes_it_right(seed):
    random = Random(seed)
    project, events = Project(random), Events()
    waiting = []
    for task in range(1, 6):
        events.place(task, task % 3)
    for _ in range(random.randrange(1, 40)):
        waiting.append(project.act())
        while waiting and random.random() < 0.6:
            webhook = waiting.pop(random.randrange(len(waiting)))
            for _ in range(random.choice([0, 1, 1, 1, 2])):
                deliver(events, webhook)
        if random.random() < 0.2:
            events.apply()
        if random.random() < 0.1:  # a listing during which something happens
            listing, since = [*project.annotations.values()], events.mirror.seq
            deliver(events, project.act())
            reconcile(events, listing, since)
    for _ in range(2):
        reconcile(events, [*project.annotations.values()], events.mirror.seq)
        before = len(events.events)
    assert len(events.events) == before
    events.apply()
    for image in range(3):
        assert events.mirror.applied.get(image, State()) == events.mirror.state(image) == project.truth(image)
    again = Mirror()
    for event in events.events:
        again.take(event)
    assert (again.annotations, again.applied, again.images) == (
        events.mirror.annotations,
        events.mirror.applied,
        events.mirror.images,
    )
    assert again.differences() == []
