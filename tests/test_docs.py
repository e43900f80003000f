"""The code on the pages runs, and the links lead somewhere."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


def test_a_network_of_your_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(ROOT / "docs" / "own-network.md", "python")
    found = {}
    exec(code, found)
    assert found["learner"].classes_ == ["night"]


def test_a_learner_of_your_own(tmp_path, monkeypatch):
    module, check = blocks(ROOT / "docs" / "own-learner.md", "python")
    (tmp_path / "mymodule.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mymodule", raising=False)
    exec(check, {})


def test_the_settings_of_the_readme():
    from coldstream import CSSL

    (settings,) = [code for code in blocks(ROOT / "README.md", "python") if "CSSL.paper(" in code]
    exec(settings, {"CSSL": CSSL, "labels": ["a", "b"]})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_example_experiment_is_a_config():
    from coldstream.lab.config import make_config, read_config

    files = sorted((ROOT / "experiments").glob("*.yaml"))
    assert len(files) >= 3
    for file in files:
        assert make_config(read_config(file)).name == file.stem
