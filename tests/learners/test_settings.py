"""Settings are declared once: the signature, the documentation, the checks and the checkpoint follow from that."""

import datetime
import enum
import inspect
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import torch
from pydantic import BeforeValidator, Field
from torch.nn import functional as F

from coldstream import CSSL, ColdStart, Learner
from coldstream.checks import check_learner
from coldstream.learners import ER, LEARNERS, DERpp
from coldstream.learners.settings import NetworkSettings, number, one_of, optional, whole_from

SMALL = {"model": "linear", "augment": "none", "replay": 4}


class Smoothed(CSSL):
    """Label smoothing, and predictions at a temperature.

    Examples
    --------
    >>> 1 + 1
    2
    """

    class Settings(CSSL.Settings):
        """With two more."""

        smoothing: Annotated[float, number(least=0, below=1)] = 0.0
        """Share of a target that is given to all classes alike."""
        temperature: Annotated[float, Field(gt=0)] = 1.0
        """What logits are divided by."""

    settings: Settings

    def loss(self, logits, batch, targets):
        return F.cross_entropy(logits, targets, label_smoothing=self.settings.smoothing)

    def _logits(self, task, items):
        return super()._logits(task, items) / self.settings.temperature


def stream(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 6, 6, 3), dtype=np.uint8), rng.integers(0, 3, count).tolist()


def arrays_of(learner):
    """Return all weights and momentum of a learner, by name."""
    task = learner.tasks[None]
    return learner.engine.state() | {f"head.{name}": array for name, array in task.head.state().items()}


# Declaring.


def test_a_subclass_with_an_init_is_refused():
    with pytest.raises(TypeError, match="__init__") as refusal:

        class Loses(CSSL):
            def __init__(self, smoothing=0.1):
                super().__init__()
                self.smoothing = smoothing

    assert "Loses" in str(refusal.value)
    assert "Settings" in str(refusal.value)
    assert "_set_up" in str(refusal.value)


@pytest.mark.parametrize("declared", [type("Settings", (), {}), NetworkSettings, {"smoothing": 0.1}])
def test_settings_that_do_not_add_to_those_inherited_are_refused(declared):
    with pytest.raises(TypeError, match=r"Apart\.Settings must derive from CSSLSettings"):
        type("Apart", (CSSL,), {"Settings": declared})


def test_the_signature_is_that_of_the_declaration():
    parameters = inspect.signature(Smoothed).parameters
    assert [*parameters] == [*inspect.signature(CSSL).parameters, "smoothing", "temperature"]
    assert parameters["smoothing"].default == 0.0
    assert parameters["smoothing"].annotation is float
    assert parameters["replay"].default == 100
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters.values())
    assert "smoothing" not in inspect.signature(CSSL).parameters


@pytest.mark.parametrize("kind", LEARNERS.values(), ids=LEARNERS)
def test_every_setting_of_every_learner_is_documented_once(kind):
    lines = kind.__doc__.splitlines()
    for name, field in kind.Settings.model_fields.items():
        assert lines.count(name) == 1, f"{name} is documented {lines.count(name)} times"
        described = inspect.cleandoc(field.description).splitlines()[0]
        assert lines[lines.index(name) + 1] == f"    {described}"
        assert described
    assert lines.count("Parameters") == 1
    assert [*inspect.signature(kind).parameters] == [*kind.Settings.model_fields]
    settings = kind().settings
    for name, parameter in inspect.signature(kind).parameters.items():
        assert getattr(settings, name) == parameter.default


def test_a_subclass_documents_its_settings_before_its_examples():
    text = inspect.getdoc(Smoothed)
    assert text.startswith("Label smoothing, and predictions at a temperature.")
    assert "smoothing\n    Share of a target that is given to all classes alike.\n" in text
    assert text.index("Parameters\n----------") < text.index("temperature\n    What") < text.index("Examples\n----")
    assert text.count("Examples\n--------") == 1


def test_a_section_of_parameters_that_is_there_is_left_alone():
    text = "Mean.\n\nParameters\n----------\nreplay\n    Few."
    assert inspect.cleandoc(type("Written", (CSSL,), {"__doc__": text}).__doc__) == text


def test_a_setting_without_a_default_must_be_given():
    class Asks(CSSL):
        class Settings(CSSL.Settings):
            margin: float
            """How far apart."""

    assert inspect.signature(Asks).parameters["margin"].default is inspect.Parameter.empty
    with pytest.raises(ValueError, match="Asks needs setting 'margin', which has no default"):
        Asks(replay=3)
    assert Asks(margin=2).settings.margin == 2


def test_a_default_that_is_made_anew_is_in_the_signature():
    class Makes(CSSL):
        class Settings(CSSL.Settings):
            layers: list[int] = Field(default_factory=lambda: [3, 4])

    assert inspect.signature(Makes).parameters["layers"].default == [3, 4]
    assert Makes().settings.layers == [3, 4]


# Checking.


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((CSSL, name, value) for name in ("replay", "seed") for value in (-1, 1.5, "3", True, None)),
        *((CSSL, "classes", value) for value in (0, -1, 2.5, "2", False)),
        *((CSSL, name, value) for name in ("momentum", "weight_decay") for value in (1, -0.1, "x", None, True)),
        *((CSSL, "momentum", value) for value in (float("nan"), float("inf"))),
        *((CSSL, "capacity", value) for value in (0, -3, 1.5, "30 horses", [], True)),
        *((CSSL, "rate", value) for value in (0, -1, True, None, [], "fast")),
        *((CSSL, name, value) for name in ("evict", "codec", "storage", "augment") for value in (5, [], None, "x")),
        *((CSSL, name, value) for name in ("sample", "strategy") for value in (5, [], None, "x")),
        *((CSSL, name, value) for name in ("precision", "memory_format") for value in (5, [], {}, None, "x")),
        *((CSSL, "device", value) for value in ([], None, "gpu")),
        *((CSSL, "compile", value) for value in (1, "yes", None)),
        *((CSSL, "prefetch", value) for value in (3, "x", [], None)),
        *((CSSL, "model", value) for value in (3, "resnet", None)),
        *((CSSL, "init", value) for value in (3, None, [])),
        *((CSSL, "normalize", value) for value in (3, "x", ([0.5], [0.0]), None)),
        *((CSSL, "zoom", value) for value in (0, 1.5, "x", True)),
        *((CSSL, "size", value) for value in (0, "a", [1], (3, 0))),
        *((CSSL, "channels", value) for value in (2, "grey", True, [])),
        *((CSSL, "items", value) for value in ("x", [], None)),
        *((CSSL, "counts", value) for value in (3, [1], {"a": 0}, {1.5: 2})),
        *((ColdStart, "strong_share", value) for value in (-0.1, 1.1, "x", True)),
        *((ColdStart, "passes", value) for value in (0, 1.5)),
        *(
            (ColdStart, name, value)
            for name in ("average", "calibrate", "unseen", "warm_up", "full_on_duplicates")
            for value in (1, "yes", None)
        ),
        *((DERpp, name, value) for name in ("alpha", "beta") for value in (-1, "1", None, True)),
        *((Smoothed, "smoothing", value) for value in (-0.1, 1, "x")),
        *((Smoothed, "temperature", value) for value in (0, -1, "x", None)),
    ],
)
def test_a_wrong_value_is_refused_by_name(kind, name, value):
    with pytest.raises(ValueError, match=".") as refusal:
        kind(**{name: value})
    words = {"sample": "sampl", "normalize": "normali", "memory_format": "memory", "augment": "aug"}
    inner = {"counts": {"{'a': 0}": "0", "{1.5: 2}": "1.5"}, "size": {"(3, 0)": "0"}}.get(name, {})
    plain = [*value] if isinstance(value, tuple) else value
    assert inner.get(repr(value), repr(plain)) in str(refusal.value)
    if "1.5" not in inner.get(repr(value), ""):
        assert words.get(name, name) in str(refusal.value)


@pytest.mark.parametrize(
    ("check", "good", "bad", "message"),
    [
        (whole_from(2), [2, np.int64(7)], [1, 2.0, "2"], "field is a whole number from 2, not "),
        (number(above=0, most=1), [0.5, 1], [0, 1.01, None], "field is a number above 0 and at most 1, not "),
        (number(least=0), [0, 9e9], [-1e-9, float("nan")], "field is a number from 0, not "),
        (one_of(("left", "right"), "side"), ["left"], ["up", [], {}], "unknown side "),
        (optional(whole_from(1)), [None, 3], [0, "3"], "field is a whole number from 1, not "),
        (optional(one_of(("left", "right"), "side")), [None, "right"], ["up"], "unknown side "),
    ],
)
def test_checks_for_settings(check, good, bad, message):
    class Settings(CSSL.Settings):
        field: Annotated[object, check] = None

    kind = type("Any", (CSSL,), {"Settings": Settings})
    for value in good:
        assert kind(field=value).settings.field == value
    for value in bad:
        with pytest.raises(ValueError, match="^" + message) as refusal:
            kind(field=value)
        assert repr(value) in str(refusal.value)


def test_an_unknown_setting_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="unknown setting of Smoothed 'smothing'; did you mean 'smoothing'?"):
        Smoothed(smothing=0.1)
    with pytest.raises(ValueError, match="unknown setting of CSSL 'smoothing'"):
        CSSL(smoothing=0.1)


def test_settings_that_depend_on_each_other_are_checked_in_set_up():
    with pytest.raises(ValueError, match=r"augment='crop' is for images"):
        CSSL(items="vectors", augment="crop")


def test_settings_are_frozen():
    learner = Smoothed(**SMALL, smoothing=0.1)
    for name, value in {"smoothing": 0.2, "replay": 5, "new": 1}.items():
        with pytest.raises(ValueError, match=r"frozen|no field"):
            setattr(learner.settings, name, value)
    assert (learner.settings.smoothing, learner.settings.replay) == (0.1, 4)


def test_what_the_caller_does_with_a_value_later_changes_nothing():
    counts, size = {"a": 3}, [6, 6]
    learner = CSSL(counts=counts, size=size, rate="linear(0.1, 0.001)")
    counts["a"], size[0] = 9, 5
    assert learner.settings.counts == {"a": 3}
    assert learner.settings.size == [6, 6]


def test_numbers_of_numpy_and_devices_of_torch_are_plain_settings():
    learner = CSSL(replay=np.int64(5), momentum=np.float32(0.5), device=torch.device("cpu"))
    assert (learner.settings.replay, learner.settings.momentum, learner.settings.device) == (5, 0.5, "cpu")
    assert type(learner.settings.replay) is int
    assert type(learner.settings.momentum) is float
    assert type(learner.settings.device) is str


# Saving.


def test_a_setting_of_a_subclass_is_kept_and_a_resumed_stream_follows_it(tmp_path):
    images, labels = stream(40)
    settings = {**SMALL, "smoothing": 0.4, "temperature": 3.0}
    straight, stopped = Smoothed(**settings), Smoothed(**settings)
    straight.learn_many(images, labels)
    stopped.learn_many(images[:20], labels[:20])
    stopped.save(tmp_path / "kept")
    resumed = Smoothed.load(tmp_path / "kept")
    assert resumed.settings == stopped.settings
    resumed.learn_many(images[20:], labels[20:])
    np.testing.assert_array_equal(resumed.predict_proba_many(images), straight.predict_proba_many(images))
    assert resumed.fingerprint() == straight.fingerprint()
    weights, expected = arrays_of(resumed), arrays_of(straight)
    assert weights.keys() == expected.keys()
    assert all(np.array_equal(weights[name], expected[name]) for name in expected)

    # With the defaults after loading it would have gone another way: the settings matter to this stream.
    lost = Smoothed(**SMALL)
    lost.learn_many(images[:20], labels[:20])
    lost.learn_many(images[20:], labels[20:])
    assert any(not np.array_equal(array, expected[name]) for name, array in arrays_of(lost).items())


def test_a_snapshot_has_the_settings_of_a_subclass():
    images, labels = stream(20)
    learner = Smoothed(**SMALL, smoothing=0.2, temperature=4.0)
    learner.learn_many(images, labels)
    snapshot = learner.snapshot()
    assert snapshot.settings == learner.settings
    np.testing.assert_array_equal(snapshot.predict_proba_many(images), learner.predict_proba_many(images))
    logits = learner.engine.logits(learner.tasks[None].head, images)
    hot = np.exp(logits / 4)
    expected = hot / hot.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(snapshot.predict_proba_many(images), expected, rtol=1e-9)


def test_a_fingerprint_covers_the_settings_of_a_subclass():
    assert Smoothed(**SMALL, smoothing=0.1).fingerprint() != Smoothed(**SMALL, smoothing=0.2).fingerprint()


def test_settings_of_any_plain_kind_survive_a_checkpoint(tmp_path):
    class Many(CSSL):
        class Settings(CSSL.Settings):
            names: list[str] = ["a"]  # noqa: RUF012 - copied by pydantic
            pair: tuple[int, float] = (1, 2.0)
            table: dict[str, int] = {}  # noqa: RUF012
            perhaps: float | None = 1.0
            rate_of_all: float = 0.1

    given = {"names": ["x", "y"], "pair": (3, 0.1), "table": {"k": 7}, "perhaps": None, "rate_of_all": 1 / 3}
    learner = Many(**SMALL, **given)
    learner.learn_many(*stream(3))
    learner.save(tmp_path / "kept")
    for twin in (Many.load(tmp_path / "kept"), learner.snapshot()):
        assert {name: getattr(twin.settings, name) for name in given} == given


def test_check_learner_passes_with_settings_and_says_what_to_look_for_without():
    check_learner(lambda **settings: Smoothed(**{**SMALL, "capacity": 12, "smoothing": 0.2, **settings}))

    class Counts(CSSL):
        """Divides the loss by a number that no checkpoint knows."""

        def _set_up(self):
            super()._set_up()
            self.updates = 0

        def loss(self, logits, batch, targets):
            self.updates += 1
            return F.cross_entropy(logits, targets) / self.updates

    with pytest.raises(AssertionError, match="check_resumes_bit_for_bit: a stopped and resumed stream") as failure:
        check_learner(lambda **settings: Counts(**{**SMALL, **settings}))
    for hint in ("_state", "_task_state", "`_learn` changes", "not declared in `Settings`"):
        assert hint in str(failure.value)


def test_check_learner_finds_a_setting_that_is_lost():
    class Loses(CSSL):
        class Settings(CSSL.Settings):
            smoothing: Annotated[float, number(least=0, below=1)] = 0.2

            def to_json(self):
                return {name: value for name, value in super().to_json().items() if name != "smoothing"}

    with pytest.raises(AssertionError, match="setting 'smoothing' was 0.15.* and is 0.2 after loading"):
        check_learner(lambda **settings: Loses(**{**SMALL, **settings}))


def test_a_learner_needs_new_task_and_learn():
    with pytest.raises(TypeError, match="_learn.*_new_task"):
        Learner()


class Colour(enum.Enum):
    RED = "red"


class Kinds(ER):
    """Settings of types that JSON does not have."""

    class Settings(ER.Settings):
        day: datetime.date = datetime.date(2026, 1, 1)
        colour: Colour = Colour.RED
        names: frozenset[str] = frozenset()
        place: Path = Path("here")
        pair: tuple[int, float] = (1, 0.5)
        made: list[int] = Field(default_factory=lambda: [1])


def test_settings_of_any_type_that_pydantic_can_write_are_kept(tmp_path):
    learner = Kinds(names={"a", "b"}, pair=(2, 0.25), place="there", made=[3])
    learner.learn_one(np.zeros((8, 8, 3), np.uint8), "a")
    learner.save(tmp_path / "kept")
    loaded = Kinds.load(tmp_path / "kept")
    assert loaded.settings == learner.settings
    assert loaded.settings.names == frozenset({"a", "b"})
    assert loaded.fingerprint() == learner.fingerprint()


def test_equal_sets_are_written_the_same():
    class Sets(ER):
        class Settings(ER.Settings):
            names: frozenset[int] = frozenset()
            nested: dict[str, list[frozenset[frozenset[int]]]] = Field(default_factory=dict)

    one, other = frozenset([0, 8]), frozenset([8, 0])  # the hashes collide: iteration is in order of insertion
    assert [*one] != [*other]
    learners = [Sets(names=names, nested={"k": [{names, frozenset([3])}]}) for names in (one, other)]
    assert learners[0].settings.to_json() == learners[1].settings.to_json()
    assert learners[0].settings.to_json()["nested"] == {"k": [[[0, 8], [3]]]}


def test_a_setting_that_could_not_be_kept_is_refused_at_once():
    class Calls(ER):
        class Settings(ER.Settings):
            call: object = print

    with pytest.raises(ValueError, match="'call' that a checkpoint cannot keep"):
        Calls()

    class Changes(ER):
        class Settings(ER.Settings):
            value: Annotated[float, BeforeValidator(lambda value: value + 1)] = 0.0

    with pytest.raises(ValueError, match="'value' that a checkpoint would not keep as it is"):
        Changes(value=1.0)


def test_arguments_of_a_second_base_class_are_refused():
    class Mixin:
        def __init__(self, gamma=1.0, **settings):
            super().__init__(**settings)

    with pytest.raises(TypeError, match="arguments a checkpoint would not keep"):
        type("Mixed", (Mixin, ER), {})
