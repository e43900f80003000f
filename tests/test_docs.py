"""The code on the pages runs, and the links lead somewhere."""

import ast
import contextlib
import importlib
import inspect
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from coldstream import CSSL, ColdStart, Learner
from coldstream.data import digits
from coldstream.learners import ER, Batch
from coldstream.learners.method import Method
from plain_replay import PlainReplay, assert_same, cross_entropy, stream

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


def test_a_network_of_your_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(ROOT / "docs" / "own-network.md", "python")
    names = {}
    exec(code, names)
    assert names["learner"].classes_ == ["night"]


OWN_LEARNER = ROOT / "docs" / "own-learner.md"


@pytest.fixture
def own_learners(tmp_path, monkeypatch):
    """The modules of the page on own learners, written into files as the page says, and importable."""
    modules = {}
    for code in blocks(OWN_LEARNER, "python"):
        if match := re.match(r"# (\w+)\.py\n", code):
            (tmp_path / f"{match[1]}.py").write_text(code)
            monkeypatch.delitem(sys.modules, match[1], raising=False)
            modules[match[1]] = code
    assert [*modules] == ["er_ace", "der", "agem", "nearest_mean"]
    monkeypatch.syspath_prepend(tmp_path)
    yield modules
    for name in modules:
        sys.modules.pop(name, None)


def test_learners_of_your_own_pass_the_checks(own_learners):
    (check,) = [code for code in blocks(OWN_LEARNER, "python") if "from der import" in code]
    exec(check, {})


@pytest.mark.parametrize("model", ["linear", "resnet8-16"])
@pytest.mark.parametrize("per_update", [1, 10])
@pytest.mark.parametrize(("module", "name"), [("er_ace", "ERACE"), ("der", "DERpp")])
def test_learners_of_your_own_equal_those_of_the_package(own_learners, module, name, per_update, model):
    images, labels = digits_of(60)
    kinds = [getattr(importlib.import_module(place), name) for place in (module, "coldstream.learners")]
    assert kinds[0] is not kinds[1]
    learners = [kind(model=model, replay=6, capacity=20, seed=2) for kind in kinds]
    for learner in learners:
        learner.learn_many(images, labels, per_update=per_update)
    assert learners[0].fingerprint() == learners[1].fingerprint()
    plain = ER(model=model, replay=6, capacity=20, seed=2)
    plain.learn_many(images, labels, per_update=per_update)
    assert not np.array_equal(plain.predict_proba_many(images), learners[0].predict_proba_many(images))


@pytest.mark.parametrize("per_update", [1, 10])
def test_the_update_of_your_own_projects_the_gradient(own_learners, per_update):
    turned = []

    def losses(logits, labels, replayed):
        terms = [cross_entropy(row, label) for row, label in zip(logits, labels, strict=False)]
        values = [sum(terms) / len(terms)]
        (draw,) = replayed
        if draw:
            terms = [cross_entropy(row, label) for row, (label, _) in zip(logits[len(labels) :], draw, strict=True)]
            values.append(sum(terms) / len(draw))
        return values

    def project(slopes):
        new, *replayed = (slope.ravel() for slope in slopes)
        for old in replayed:
            turned.append(bool(new @ old < 0))
            if turned[-1]:
                new = new - (new @ old) / (old @ old) * old
        return new.reshape(slopes[0].shape)

    images, labels = stream(12 * per_update, 4, 3)
    settings = {"model": "linear", "augment": "none", "precision": "float64", "weight_decay": 1e-2}
    learner = importlib.import_module("agem").AGEM(**settings, replay=8, capacity=20, seed=7)
    oracle = PlainReplay(losses, seed=7, replay=8, capacity=20, combine=project)
    learner.learn_many(images, labels, per_update=per_update)
    for start in range(0, len(images), per_update):
        oracle.learn(images[start : start + per_update], labels[start : start + per_update])
    assert {*turned} == {False, True}
    assert_same(learner, oracle, 1e-9)


def digits_of(count):
    """Return digits, sorted by class in runs of a few."""
    train, _ = digits()
    order = np.argsort(train.labels[:count], kind="stable")
    return train.images[:count][order], train.labels[:count][order].tolist()


def test_the_learner_from_scratch_is_the_nearest_mean(own_learners):
    images, labels = digits_of(200)
    learner = importlib.import_module("nearest_mean").NearestMean()
    learner.learn_many(images[:150], labels[:150])
    known = sorted(set(labels[:150]))
    chosen = np.array(labels[:150])
    means = np.stack([images[:150][chosen == label].astype(float).mean(axis=0) for label in known])
    apart = ((images[150:, None].astype(float) - means) ** 2).sum(axis=(2, 3, 4))
    assert learner.predict_many(images[150:]) == [known[best] for best in apart.argmin(axis=1)]


def test_lines_of_a_learner_of_your_own(own_learners):
    text = OWN_LEARNER.read_text()
    lines = [
        sum(
            1
            for line in own_learners[name].splitlines()
            if line.strip() and not line.strip().startswith(("#", '"""'))
        )
        for name in ("er_ace", "der", "agem")
    ]
    assert f"ER-ACE takes {lines[0]} lines of code, DER++ {lines[1]}, A-GEM {lines[2]}." in text


def test_what_the_checks_say_of_a_broken_learner():
    (code,) = [code for code in blocks(OWN_LEARNER, "python") if "class Annealed" in code]
    (message,) = blocks(OWN_LEARNER, "text")
    with pytest.raises(AssertionError) as failure:
        exec(code, {})
    assert " ".join(message.split()) == f"AssertionError: {failure.value}"


def test_every_hook_is_on_the_page():
    """The hooks between the two comments of method.py, those of CSSL, and nothing that does not exist."""
    text = OWN_LEARNER.read_text()
    source = inspect.getsource(Method)
    part = source[source.index("# Hooks.") : source.index("# What a method may use.")]
    hooks = re.findall(r"def (\w+)\(", part)
    assert {"_learn", "_overhead"} <= {*hooks}
    kinds = {"Learner": Learner, "CSSL": CSSL}
    tables = [line for line in text.splitlines() if line.startswith("| `")]
    for hook in [*hooks, "loss", "extra"]:
        (shown,) = [match[0] for line in tables for match in re.finditer(rf"`{hook}\(self[^)]*\)`?", line)]
        owner = kinds["Learner" if hasattr(Learner, hook) else "CSSL"]
        names = [str(one).split(":")[0] for one in inspect.signature(getattr(owner, hook)).parameters.values()]
        assert shown.strip("`") == f"{hook}({', '.join(names)})"
    documented = set(re.findall(r"^\| `(\w+)\(self", text, flags=re.MULTILINE))
    assert documented <= {*dir(Learner), *dir(CSSL)}
    fields = set(re.findall(r"^\| `batch\.(\w+)`", text, flags=re.MULTILINE))
    assert fields <= {*Batch.__dataclass_fields__}


def test_the_settings_of_the_readme():
    (code,) = [code for code in blocks(ROOT / "README.md", "python") if "CSSL.paper(" in code]
    exec(code, {"ColdStart": ColdStart, "CSSL": CSSL, "labels": ["a", "b"]})
    shown = [line for line in code.splitlines() if re.match(r"    \w+=", line)]
    defaults = ColdStart.Settings.model_fields
    assert len(shown) > 8
    assert {line.split("=")[0].strip() for line in shown} <= {*defaults}
    for name in ("augment", "rate", "seed", "model", "replay", "evict"):
        (line,) = [line for line in shown if line.strip().startswith(f"{name}=")]
        assert ast.literal_eval(line.split("=", 1)[1].split("#")[0].strip().rstrip(",")) == defaults[name].default


def test_the_readme_starts_with_the_default():
    code = next(code for code in blocks(ROOT / "README.md", "python") if "predict_one" in code)
    stream = [(np.zeros((8, 8, 3), np.uint8), "night")]
    names = {"stream": stream}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(code, names)
    assert type(names["learner"]) is ColdStart
    assert names["learner"].classes_ == ["night"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_example_experiment_is_a_config():
    from coldstream.lab.reading import make_config
    from coldstream.lab.yaml_files import read_config

    files = sorted((ROOT / "experiments").glob("*.yaml"))
    assert len(files) >= 3
    for file in files:
        assert make_config(read_config(file)).name == file.stem
