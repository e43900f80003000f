"""Addresses of results: they change with all that matters, and with nothing else."""

import subprocess
import sys
from pathlib import Path

import coldstream
from coldstream import CSSL
from coldstream.lab.keys import code_version, learner_version, sources
from coldstream.learners import ER, LinearProbe

ROOT = Path(coldstream.__file__).parent


def names(*modules):
    return {str(file.relative_to(ROOT)) for file in sources(*modules)}


def test_what_counts_is_what_python_loads():
    """Python itself says which modules a learner needs, where the packages above it load nothing of their own."""
    code = f"""
import sys, types
for name in ("coldstream", "coldstream.learners", "coldstream.learners.training", "coldstream.learners.confidence"):
    package = types.ModuleType(name)
    package.__path__ = [{str(ROOT.parent)!r} + "/" + name.replace(".", "/")]
    sys.modules[name] = package
import coldstream.learners.cssl
ours = [module for name, module in sys.modules.items() if name.startswith("coldstream.") and module.__spec__]
print(*(module.__file__ for module in ours))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {str(Path(file).relative_to(ROOT)) for file in done.stdout.split()}
    assert loaded <= names("coldstream.learners.cssl")
    assert "learners/training/sgd.py" in loaded


def test_a_method_does_not_depend_on_another():
    files = names("coldstream.learners.linear_probe")
    assert "learners/linear_probe.py" in files
    assert "learners/replaying.py" in files
    assert "kernels.c" in files
    assert not files & {"learners/cssl.py", "learners/er.py", "learners/__init__.py", "cli/__init__.py"}
    assert len({learner_version(kind) for kind in (CSSL, ER, LinearProbe)}) == 3


def test_a_learner_of_the_users_own_counts_with_its_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_for_keys.py").write_text("from coldstream import CSSL\nclass Mine(CSSL): pass\n")
    import mine_for_keys

    before = learner_version(mine_for_keys.Mine)
    assert before.startswith(learner_version(CSSL))
    (tmp_path / "mine_for_keys.py").write_text("from coldstream import CSSL\nclass Mine(CSSL): step = 1\n")
    assert learner_version(mine_for_keys.Mine) != before


def test_a_changed_file_changes_the_version(tmp_path, monkeypatch):
    from coldstream.lab import keys

    (tmp_path / "coldstream").mkdir()
    (tmp_path / "coldstream" / "__init__.py").write_text("")
    (tmp_path / "coldstream" / "one.py").write_text("def late():\n    from coldstream import two\n")
    two = tmp_path / "coldstream" / "two.py"
    two.write_text("x = 1")
    monkeypatch.setattr(keys, "_ROOT", tmp_path)
    versions = []
    for text in ("x = 1", "x = 2", "x = 1"):
        two.write_text(text)
        code_version.cache_clear()
        sources.cache_clear()
        versions.append(code_version("coldstream.one"))
    code_version.cache_clear()
    sources.cache_clear()
    assert versions[0] == versions[2] != versions[1]


def test_a_name_that_a_package_loads_on_use_is_followed_to_its_module(tmp_path, monkeypatch):
    from coldstream.lab import keys

    package = tmp_path / "coldstream" / "sets"
    package.mkdir(parents=True)
    (tmp_path / "coldstream" / "__init__.py").write_text("")
    names = "if TYPE_CHECKING:\n    from coldstream.sets.a import A\n    from coldstream.sets.b import B\n"
    (package / "__init__.py").write_text(f"from typing import TYPE_CHECKING\n{names}")
    (package / "a.py").write_text("A = 1")
    (package / "b.py").write_text("B = 1")
    (tmp_path / "coldstream" / "one.py").write_text("from coldstream.sets import A\n")
    monkeypatch.setattr(keys, "_ROOT", tmp_path)
    keys.sources.cache_clear()
    keys._loaded_on_use.cache_clear()
    files = {file.relative_to(tmp_path / "coldstream").as_posix() for file in keys.sources("coldstream.one")}
    keys.sources.cache_clear()
    keys._loaded_on_use.cache_clear()
    assert files == {"one.py", "sets/__init__.py", "sets/a.py"}


def test_comments_docstrings_and_layout_do_not_count(tmp_path):
    from coldstream.lab.keys import code_of

    one, other, third = (tmp_path / f"{name}.py" for name in "abc")
    one.write_text('"""Says."""\nclass A:\n    """Is."""\n    x: int = 1\n    """Of A."""\n')
    other.write_text("# a comment\nclass A:\n    x : int=1  # of A\n")
    third.write_text("class A:\n    x: int = 2\n")
    assert code_of(one) == code_of(other) != code_of(third)


def test_strings_that_are_used_count(tmp_path):
    from coldstream.lab.keys import code_of

    one, other = tmp_path / "a.py", tmp_path / "b.py"
    one.write_text("def f():\n    return 'a'\n")
    other.write_text("def f():\n    return 'b'\n")
    assert code_of(one) != code_of(other)
