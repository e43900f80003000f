"""The files around the code agree with it: version, licence, citation, workflow, drawing."""

import hashlib
import re
import runpy
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import coldstream
from coldstream._version import __version__

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())


def commands(job):
    return [step["run"].strip() for step in WORKFLOW["jobs"][job]["steps"] if "run" in step]


def test_the_version_is_written_in_one_place():
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/coldstream/_version.py"
    assert coldstream.__version__ == __version__


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == __version__
    assert citation["license"] == PROJECT["project"]["license"]
    paper = citation["preferred-citation"]
    assert paper["url"] == PROJECT["project"]["urls"]["Paper"]
    assert paper["url"] in (ROOT / "README.md").read_text()
    assert paper["title"] in (ROOT / "README.md").read_text()


def test_the_changelog_has_this_version():
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert __version__ in versions


def test_the_licence_is_the_unmodified_text():
    text = (ROOT / "LICENSE").read_bytes()
    assert hashlib.sha256(text).hexdigest() == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_the_workflow_runs_what_the_readme_says():
    readme = (ROOT / "README.md").read_text()
    assert ".ci/run" in commands("tests")
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "uv run pytest"
    run = [*commands("lint"), *commands("slow"), "uv run pytest"]
    assert {command for command in run if command.startswith("uv run")} == {
        "uv run pytest",
        "uv run pytest -m slow",
        "uv run ruff check",
        "uv run ruff format --check",
        "uv run mypy",
    }
    for command in run:
        assert command.removesuffix(" --check") in readme, f"{command} is not in the README"


def test_the_workflow_tests_every_version_with_and_without_a_compiler():
    matrix = WORKFLOW["jobs"]["tests"]["strategy"]["matrix"]
    classifiers = "\n".join(PROJECT["project"]["classifiers"])
    assert matrix["python"] == re.findall(r"Python :: (3\.\d+)$", classifiers, flags=re.MULTILINE)
    assert PROJECT["project"]["requires-python"] == f">={matrix['python'][0]}"
    assert matrix["compiler"] == ["with", "without"]
    hidden = next(step for step in WORKFLOW["jobs"]["tests"]["steps"] if step.get("if"))
    for name in re.findall(r'shutil\.which\("(\w+)"\)', (ROOT / "src/coldstream/native.py").read_text()):
        assert re.search(rf"for name in .*\b{name}\b", hidden["run"]), f"{name} is not hidden"


def test_slow_tests_run_on_a_schedule_only():
    triggers = WORKFLOW[True]  # YAML 1.1 reads the key `on` as a boolean
    assert triggers["schedule"]
    assert "schedule" in WORKFLOW["jobs"]["slow"]["if"]
    assert WORKFLOW["jobs"]["tests"]["if"] == "github.event_name != 'schedule'"


def test_hooks_download_nothing():
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in repos] == ["local"]
    entries = [hook["entry"] for hook in repos[0]["hooks"]]
    assert {"uv run ruff check --fix", "uv run ruff format", "uv run mypy"} <= set(entries)


def test_the_drawing_is_that_of_the_source():
    made = runpy.run_path(str(ROOT / "docs" / "make_architecture.py"))
    expected = made["draw"](made["import_graph"]())
    assert made["DRAWING"].read_text() == expected, "run: uv run python docs/make_architecture.py"


def test_the_drawing_shows_what_is_imported():
    made = runpy.run_path(str(ROOT / "docs" / "make_architecture.py"))
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"e"}, "e": {"d", "c"}}
    assert made["levels"](graph) == {"c": 0, "b": 1, "a": 2, "d": 1, "e": 1}
    assert made["arrows"](graph) == [("a", "b"), ("b", "c"), ("d", "e"), ("e", "c"), ("e", "d")]
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert all(f"| `{room}` |" in page for room in made["import_graph"]())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")
def test_the_wheel_has_what_it_needs(tmp_path):
    subprocess.run(["uv", "build", "--wheel", "-q", "-o", str(tmp_path)], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"coldstream/py.typed", "coldstream/kernels.c"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any("benchmarks" in name for name in names)
    assert f"coldstream-{__version__}-" in wheel.name
