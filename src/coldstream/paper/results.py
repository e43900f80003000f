"""What the rows found: read from finished runs, kept as small files beside the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from coldstream import metrics
from coldstream.lab.config import Config, changes_between, make_config, read_config, write_config
from coldstream.lab.environment import describe_environment
from coldstream.lab.keys import key_of
from coldstream.lab.records import Folder, Record
from coldstream.paper.catalog import Row, Settings
from coldstream.paper.verdicts import Values

_OF_A_TEST = ("step", "task", "accuracy", "ece")


def read(row: Row, scale: str, runs: Path, kept: Path) -> Record | None:
    """Return what a row found: its runs, and of what was kept before the seeds that these lack; None without either.

    Only what has the row's settings as they are: see `left_out`.
    """
    before, now = of_file(row, scale, kept), of_runs(row, scale, runs)
    if row.measured is not None or before is None:
        return now or before
    parts: Record = {}
    for part, tree in row.experiments(scale).items():
        old, new = before["parts"].get(part), now["parts"].get(part) if now else None
        if old and old["settings"] != address(tree):
            old = None
        if found := _together(old, new) if old and new else new or old:
            parts[part] = found
    return {**(now or before), "parts": parts} if parts else None


def _together(old: Record, new: Record) -> Record:
    """Return two results of one part, a seed that both have from the newer one."""
    mine = {run["seed"] for runs in new["learners"].values() for run in runs}
    learners = {}
    for name, runs in new["learners"].items():
        added = [run for run in old["learners"].get(name, ()) if run["seed"] not in mine]
        learners[name] = sorted(runs + added, key=lambda run: run["seed"])
    return {**new, "learners": learners}


def with_earlier_seeds(config: Config, runs: Path) -> Config:
    """Return the config of a part with the seeds that were run already, if that is all in which its run differs."""
    path = runs / config.name / "config.yaml"
    if not path.is_file():
        return config
    before, wanted = read_config(path), yaml.safe_load(write_config(config))
    if changes_between({**before, "seeds": None}, {**wanted, "seeds": None}):
        return config
    return config.model_copy(update={"seeds": sorted({*before["seeds"], *config.seeds})})


def left_out(row: Row, scale: str, runs: Path, kept: Path) -> list[str]:
    """Return what `read` leaves out, a sentence each: runs and kept results of other settings than the row's."""
    if row.measured is not None:
        return []
    said = []
    before = of_file(row, scale, kept)
    for part, tree in row.experiments(scale).items():
        folder = Folder(runs / str(tree["name"]))
        if folder.has("summary.json") and (changed := _changes(tree, folder)):
            said.append(f"{folder.path} is not in it, for it was run with other settings: {'; '.join(changed)}")
        if before and part in before["parts"] and before["parts"][part]["settings"] != address(tree):
            said.append(f"what was kept of {row.name}, {part}, is not in it: the row has other settings now")
    return said


def address(tree: Settings) -> str:
    """Return a hash of all settings that a result depends on."""
    return key_of(_what_matters(tree))


_NO_MATTER = ("name", "seeds", "prequential", "checkpoint_every", "evaluate", "tensorboard")


def _what_matters(tree: Settings) -> Settings:
    """Return settings without those that leave each seed's result as it is, and without where the data are."""
    return _placeless({key: value for key, value in tree.items() if key not in _NO_MATTER})


def _placeless(tree: Settings) -> Settings:
    return {
        key: _placeless(value) if isinstance(value, dict) else value
        for key, value in tree.items()
        if key not in ("root", "download")
    }


def _changes(tree: Settings, folder: Folder) -> list[str]:
    """Return which settings of a run are not those of its row; ones that came later aside."""
    wanted = yaml.safe_load(write_config(make_config(tree)))
    ran = read_config(folder.path / "config.yaml")
    return changes_between(_what_matters(_common(wanted, ran)), _what_matters(ran))


def _common(tree: Any, other: Any) -> Any:
    """Return a tree without the settings that another one does not know; every learner stays."""
    if not isinstance(tree, dict) or not isinstance(other, dict):
        return tree
    known = {key: _common(value, other[key]) for key, value in tree.items() if key in other and key != "learners"}
    if "learners" in tree:
        known["learners"] = {
            name: _common(own, other["learners"].get(name)) for name, own in tree["learners"].items()
        }
    return known


def minutes(row: Row, found: Record) -> float:
    """Return how long all parts and seeds of a row take on two cores, by how long those took that were run."""
    if row.measured is not None:
        return seconds(found) / 60
    trees = row.experiments(found["scale"])
    wanted = sum(len(tree["learners"]) * len(tree["seeds"]) for tree in trees.values())
    ran = sum(
        len(found["parts"][part]["learners"][name]) for part in found["parts"] for name in trees[part]["learners"]
    )
    return seconds(found) / 120 * wanted / ran


def seconds(found: Record) -> float:
    """Return how long all that was found took, one job after another."""
    runs = (run for part in found["parts"].values() for mine in part["learners"].values() for run in mine)
    return float(found["seconds"] if "seconds" in found else sum(run.get("seconds", 0) for run in runs))


def of_file(row: Row, scale: str, folder: Path) -> Record | None:
    """Return what was kept of a row."""
    path = folder / f"{row.slug}-{scale}.json"
    if not path.is_file():
        return None
    try:
        found: Record = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not a file of results: {error}; delete it and run the row again") from error
    return found


def keep(found: Record, folder: Path) -> None:
    """Keep what a row found, a line a run, so that a change shows as what it is."""
    parts = []
    for part, content in found["parts"].items():
        learners = ",\n".join(
            f"    {json.dumps(name)}: [\n      " + ",\n      ".join(json.dumps(run) for run in runs) + "\n    ]"
            for name, runs in content["learners"].items()
        )
        facts = json.dumps({key: value for key, value in content.items() if key != "learners"})[:-1]
        parts.append(f'  {json.dumps(part)}: {facts}, "learners": {{\n{learners}\n  }}}}')
    head = {key: value for key, value in found.items() if key != "parts"}
    text = json.dumps(head)[:-1] + ', "parts": {\n' + ",\n".join(parts) + "\n}}\n"
    Folder(folder).make()
    Folder(folder).write(f"{found['row'].replace(':', '-')}-{found['scale']}.json", text)


def write_measured(row: Row, scale: str, part: str, pieces: Mapping[str, Mapping[str, Any]], runs: Path) -> None:
    """Write down the milliseconds of each learner's pieces, a list each, as if every step had been a run."""
    learners = {
        name: [
            {"seed": step, "numbers": dict(zip(mine, map(float, values), strict=True)), "events": []}
            for step, values in enumerate(zip(*mine.values(), strict=True))
        ]
        for name, mine in pieces.items()
    }
    taken = sum(float(sum(values)) for mine in pieces.values() for values in mine.values()) / 1000
    parts = {part: {"examples": 0, "learners": learners}}
    facts = {"row": row.name, "scale": scale, "date": datetime.now(UTC).date().isoformat(), "seconds": round(taken)}
    folder = Folder(runs / f"{row.slug}-{scale}")
    folder.make()
    folder.write("summary.json", {**facts, "environment": describe_environment(), "parts": parts})


def of_runs(row: Row, scale: str, runs: Path, *, changed: bool = False) -> Record | None:
    """Return what the finished runs of a row found, part by part; None while there is none.

    Those with other settings than the row's count only where `changed` is true.
    """
    if row.measured is not None:
        folder = Folder(runs / f"{row.slug}-{scale}")
        return folder.read("summary.json") if folder.has("summary.json") else None
    parts: Record = {}
    shown = any(figure.kind == "confusion" for figure in row.figures)
    newest, environment = 0.0, {}
    for part, tree in row.experiments(scale).items():
        folder = Folder(runs / str(tree["name"]))
        if not folder.has("summary.json") or (not changed and _changes(tree, folder)):
            continue
        summary, timing = folder.read("summary.json"), folder.read("timing.json")
        last = _last_tests(folder.lines("metrics.jsonl"))
        took = {name: [one["seconds"] for one in mine] for name, mine in timing["learners"].items()}
        shared = timing["seconds"] - sum(map(sum, took.values()))  # offline references and the like
        learners: dict[str, list[Record]] = {}
        for name, found in summary["learners"].items():
            learners[name] = []
            for run, one in zip(found["runs"], timing["learners"][name], strict=True):
                environment = one["environment"]
                facts = {"commit": str(environment.get("commit"))[:7]}
                facts["seconds"] = round(one["seconds"] + shared / sum(map(len, took.values())))
                learners[name].append({**_compact(run, last[name, run["seed"]], shown), **facts})
        facts = {"settings": address(tree), "examples": summary["examples"]}
        parts[part] = {**facts, "learners": {**learners, **_offline(summary)}}
        newest = max(newest, (folder.path / "metrics.jsonl").stat().st_mtime)
    if not parts:
        return None
    date = datetime.fromtimestamp(newest, UTC).date().isoformat()
    return {"row": row.name, "scale": scale, "date": date, "environment": environment, "parts": parts}


def _last_tests(lines: list[Record]) -> dict[tuple[str, int], list[Record]]:
    """Return the tests at the end of each learner's stream: one, or one a task."""
    found: dict[tuple[str, int], list[Record]] = {}
    for line in lines:
        mine = found.setdefault((line["learner"], line["seed"]), [])
        if mine and mine[-1]["step"] != line["step"]:
            mine.clear()
        mine.append(line)
    return found


def _compact(run: Record, last: list[Record], shown: bool) -> Record:
    """Return a run without what no table or picture of a row shows."""
    numbers = {name: round(value, 5) for name, value in run.items() if isinstance(value, float)}
    tasks: Record = run.get("tasks", {})
    numbers |= {f"accuracy of {task}": round(mine["final_accuracy"], 5) for task, mine in tasks.items()}
    tests = [{**event, "task": task} for task, mine in tasks.items() for event in mine["events"]] or run["events"]
    events = [{key: _short(event[key]) for key in _OF_A_TEST if event.get(key) is not None} for event in tests]
    found: Record = {"seed": run["seed"], "numbers": numbers, "events": events}
    if not tasks:
        for name, value in (("average_accuracy", "accuracy"), ("average_top5", "top5")):
            numbers[name] = round(sum(event[value] for event in tests) / len(tests), 5)
        confusion = last[0]["confusion"]
        numbers |= biases(last[0]["classes"], confusion["columns"], confusion["rows"], _last_batch(run))
        if shown:
            found["confusion"] = {"classes": last[0]["classes"], **confusion}
    return found


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _last_batch(run: Record) -> int:
    """Return how many classes came since the test before the last."""
    counts = [event["classes"] for event in run["events"]]
    return counts[-1] - counts[-2] if len(counts) > 1 else 0


def biases(classes: list[str], columns: list[str], rows: list[list[int]], last: int) -> Record:
    """Return the share of images of older classes that are taken for one of the `last` newest, or for the newest.

    Classes are in the order of coming.

    Examples
    --------
    >>> found = biases(["a", "b", "c"], ["a", "b", "c"], [[6, 1, 3], [2, 4, 4], [0, 0, 9]], 2)
    >>> found["bias_to_last_batch"], found["bias_to_last_class"]
    (0.4, 0.35)
    """
    if not last or len(classes) <= last:
        return {}
    column = {name: place for place, name in enumerate(columns)}

    def share(newest: int) -> float:
        old = rows[: len(classes) - newest]
        new = [column[name] for name in classes[-newest:] if name in column]
        return round(sum(row[place] for row in old for place in new) / max(1, sum(map(sum, old))), 5)

    return {"bias_to_last_batch": share(last), "bias_to_last_class": share(1)}


def _offline(summary: Record) -> dict[str, list[Record]]:
    """Return the offline references of several tasks as if they were a learner's runs."""
    runs = next(iter(summary["learners"].values()))["runs"]
    if runs[0].get("offline_accuracy") is None:
        return {}
    found = []
    for run in runs:
        numbers = {f"accuracy of {task}": round(mine["offline_accuracy"], 5) for task, mine in run["tasks"].items()}
        numbers["final_accuracy"] = round(run["offline_accuracy"], 5)
        found.append({"seed": run["seed"], "numbers": numbers, "events": []})
    return {"offline": found}


def values_of(found: Record) -> Values:
    """Return every number of every run by part, learner, metric and seed."""
    return {
        (part, name, metric): {
            run["seed"]: run["numbers"][metric] for run in runs if run["numbers"].get(metric) is not None
        }
        for part, content in found["parts"].items()
        for name, runs in content["learners"].items()
        for metric in {metric for run in runs for metric in run["numbers"]}
    }


def summary_of(values: Values, part: str, learner: str, metric: str) -> metrics.Summary | None:
    """Return mean and spread over seeds of one number; None where there is none."""
    found = list(values.get((part, learner, metric), {}).values())
    return metrics.summary(found) if found else None
