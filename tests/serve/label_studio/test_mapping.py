"""What is read from Label Studio's configs and payloads, also where these are hostile."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.serve.label_studio.mapping import (
    Annotation,
    Changes,
    Config,
    Task,
    decide,
    read_annotation,
    read_config,
    read_project_id,
    read_task,
    read_webhook,
    result,
)

CONFIG = Config("choice", "image", "image", ("cat", "dog"))
XML = (
    '<View><Image name="image" value="$image"/><Choices name="choice" toName="image">'
    '<Choice value="cat"/><Choice value="dog"/></Choices></View>'
)
NOW = "2026-11-19T21:56:21.548093Z"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def chosen(*labels, control="choice"):
    return [{"from_name": control, "to_name": "image", "type": "choices", "value": {"choices": [*labels]}}]


def annotation(**changed):
    values = {"id": 3, "task": 7, "result": chosen("cat"), "was_cancelled": False, "updated_at": NOW}
    return values | {"lead_time": None, "parent_prediction": None} | changed


def test_the_config_of_a_classification_project():
    assert read_config(XML) == CONFIG


def test_a_choice_is_called_by_its_alias():
    assert read_config(XML.replace('value="cat"', 'value="Cat" alias="cat"')) == CONFIG


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "not a text"),
        ("<View>" + " " * 1_000_001 + "</View>", "not a text of at most"),
        ("<View>", "not XML"),
        ('<!DOCTYPE x [<!ENTITY a "aaaa">]>' + XML, "document type"),
        ("<View/>", "exactly one <Choices>.*there is none"),
        (XML.replace('toName="image"', 'toName="other"'), "there is none"),
        (XML.replace('toName="image"', 'toName="image" choice="multiple"'), "there is none"),
        (XML.replace('toName="image"', 'toName="image" perRegion="true"'), "there is none"),
        (XML.replace("$image", "http://elsewhere/$image"), r'value="\$FIELD"'),
        (XML.replace("$image", "image"), r'value="\$FIELD"'),
    ],
)
def test_configs_that_cannot_be_used(text, message):
    with pytest.raises(ValueError, match=message):
        read_config(text)


def test_one_of_several_choices_is_named():
    second = '<Choices name="second" toName="image"><Choice value="x"/></Choices></View>'
    text = XML.replace("</View>", second)
    with pytest.raises(ValueError, match="'choice', 'second'"):
        read_config(text)
    assert read_config(text, "second") == Config("second", "image", "image", ("x",))
    with pytest.raises(ValueError, match="'third'"):
        read_config(text, "third")


@given(st.text(max_size=200))
def test_any_text_is_a_config_or_refused(text):
    with pytest.raises(ValueError):
        read_config(f"<View>{text}</View>")


@pytest.mark.parametrize("value", [None, 1, "", "x", "1.", ".1", "1.2.3", "-1", "1" * 30, "१", ["1"], "1\n"])
def test_project_ids_that_are_none(value):
    with pytest.raises(ValueError, match="expected a project"):
        read_project_id(value)


def test_an_annotation_as_label_studio_sends_it():
    read = read_annotation(annotation(), CONFIG)
    assert read == Annotation(3, 7, "2026-11-19T21:56:21.548093+00:00", "cat")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"was_cancelled": True, "result": []}, {"label": None, "skipped": True}),
        ({"was_cancelled": True}, {"label": None, "skipped": True}),
        ({"result": []}, {"label": None}),
        ({"result": chosen("cat", "dog")}, {"label": None}),
        ({"result": chosen("cat") + chosen("dog")}, {"label": None}),
        ({"result": chosen("cat") + chosen("red", control="colour")}, {"label": "cat"}),
        ({"result": chosen("  cat ")}, {"label": "cat"}),
        ({"result": chosen("a" * 201)}, {"label": None}),
        ({"result": chosen("a\nb")}, {"label": None}),
        ({"result": chosen("horse")}, {"label": "horse"}),
        ({"parent_prediction": 5}, {"by_model": True}),
        ({"parent_prediction": 5, "lead_time": 2.5}, {"by_model": False}),
        ({"updated_at": "2026-11-19T22:56:21+01:00"}, {"updated": "2026-11-19T21:56:21.000000+00:00"}),
    ],
)
def test_what_an_annotation_says(changed, expected):
    read = read_annotation(annotation(**changed), CONFIG)
    assert {name: getattr(read, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"id": None}, "annotation.id"),
        ({"id": True}, "annotation.id"),
        ({"id": 0}, "annotation.id"),
        ({"id": 2**63}, "annotation.id"),
        ({"task": None}, "annotation.task"),
        ({"task": "7"}, "annotation.task"),
        ({"updated_at": None}, "annotation.updated_at"),
        ({"updated_at": "2026-11-19T21:56:21"}, "annotation.updated_at"),
        ({"updated_at": "0001-01-01T00:00:00+14:00"}, "annotation.updated_at"),
    ],
)
def test_a_refused_annotation_names_the_field(changed, path):
    with pytest.raises(ValueError, match=path):
        read_annotation(annotation(**changed), CONFIG)


def test_a_task():
    value = {"id": 7, "data": {"image": "/data/upload/1/x.png"}, "annotations": [annotation(task=None)]}
    task = read_task(value | {"predictions": [{"id": 1}], "drafts": [annotation()]}, CONFIG)
    assert task == Task(7, "/data/upload/1/x.png", (read_annotation(annotation(), CONFIG),))
    assert read_task({"id": 7, "data": {"$undefined$": "/data/x"}}, CONFIG).url == "/data/x"
    assert read_task({"id": 7, "data": {"image": 5}}, CONFIG).url is None
    assert read_task({"id": 7, "data": None}, CONFIG).url is None


def test_webhooks():
    task = {"id": 7, "data": {"image": "/data/x"}}
    read = read_annotation(annotation(), CONFIG)
    one = {"annotation": annotation(), "task": task}
    many = {"annotation": [annotation(), annotation(id=4)], "task": [task, task]}
    assert read_webhook({"action": "ANNOTATION_CREATED"} | one, CONFIG) == Changes((read,), (Task(7, "/data/x"),))
    assert read_webhook({"action": "ANNOTATION_UPDATED"} | one, CONFIG).annotations == (read,)
    assert [one.id for one in read_webhook({"action": "ANNOTATIONS_CREATED"} | many, CONFIG).annotations] == [3, 4]
    assert read_webhook({"action": "TASKS_DELETED", "tasks": [{"id": 1}, {"id": 2}]}, CONFIG).deleted_tasks == (1, 2)
    assert read_webhook({"action": "TASKS_CREATED", "tasks": []}, CONFIG).ask
    assert read_webhook({"action": "PROJECT_UPDATED"}, CONFIG).ask
    for action in ("START_TRAINING", "LABEL_LINK_CREATED", None, ["x"]):
        assert read_webhook({"action": action} | one, CONFIG) == Changes()


ACTIONS = ["ANNOTATION_CREATED", "ANNOTATIONS_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_DELETED", "TASKS_DELETED"]


@given(st.data())
def test_a_hostile_webhook_is_refused_or_read(data):
    """Any JSON at any place of a payload gives a ValueError or well-formed changes."""
    parts = [*annotation(), "annotation", "task", "annotations", "tasks", "data"]
    broken = data.draw(st.dictionaries(st.sampled_from(parts), JSON, max_size=4))
    one = annotation() | broken
    task = {"id": 7, "data": {"image": "/data/x"}, "annotations": [one]} | broken
    payload = {"action": data.draw(st.sampled_from(ACTIONS)), "annotation": one, "task": task}
    payload |= {"annotations": [one], "tasks": [task]} | broken
    if payload["action"] == "ANNOTATIONS_CREATED" and data.draw(st.booleans()):
        payload |= {"annotation": [one], "task": [task]}
    try:
        changes = read_webhook(payload, CONFIG)
    except ValueError:
        return
    for read in changes.annotations:
        assert 1 <= read.id < 2**63
        assert 1 <= read.task < 2**63
        assert read.label is None or (0 < len(read.label) <= 200 and read.label.isprintable())
        assert not (read.label and read.skipped)
    assert all(1 <= number < 2**63 for number in (*changes.deleted, *changes.deleted_tasks))


@given(JSON)
def test_any_json_is_a_webhook_or_refused(payload):
    try:
        assert read_webhook(payload, CONFIG) == Changes()
    except ValueError:
        assert not isinstance(payload, dict)


@given(st.sampled_from(["cat", "dog", "horse", None, ""]), st.floats())
def test_a_prediction_is_valid_or_empty(guess, confidence):
    made = result(CONFIG, guess, confidence)
    assert 0 <= made["score"] <= 1
    usable = guess in ("cat", "dog") and not math.isnan(confidence) and 0 <= confidence <= 1
    assert made["result"] == (chosen(guess) if usable else [])
    if usable:
        read = read_annotation(annotation(result=made["result"]), CONFIG)
        assert read.label == guess


def test_who_decides():
    cat, dog = Annotation(1, 7, "2026-01-01", "cat"), Annotation(2, 7, "2026-01-02", "dog")
    skip, ours = (
        Annotation(3, 7, "2026-01-03", None, skipped=True),
        Annotation(4, 7, "2026-01-04", "dog", by_model=True),
    )
    nothing = Annotation(5, 7, "2026-01-05", None)
    assert decide([]) is None
    assert decide([ours]) is None
    assert decide([nothing]) is None
    assert decide([skip, ours]) == skip
    assert decide([dog, cat, skip, ours, nothing]) == dog
    assert decide([Annotation(9, 7, "2026-01-01", "dog"), cat]).id == 9
