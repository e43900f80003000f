"""Pages from templates: Markdown for the documentation, HTML for a run's folder."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from coldstream.lab.records import FinishedRun, UnitResult
from coldstream.lab.saved import saved_settings
from coldstream.report import run_plots, run_tables, tables

TEMPLATES = Path(__file__).parent / "templates"
_FEW = 20  # classes whose confusion matrix is a table that can be read


def render(template: str, *, folder: Path = TEMPLATES, **context: Any) -> str:
    """Return a page made by a Jinja2 template of a folder, which may include those of `TEMPLATES`.

    A table is turned into text by the filters `markdown` and `html`; templates named ``*.html.j2`` escape text.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["markdown"] = tables.markdown
    environment.filters["html"] = lambda table, header=True: Markup(tables.html(table, header=header))
    environment.filters["data_url"] = _data_url
    return environment.get_template(template).render(context)


def _data_url(picture: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}"


def write_report(path: Path) -> Path:
    """Draw the pictures of a finished run, write its tables and its page into its folder; return the page's path."""
    run = FinishedRun(path)
    settings = saved_settings(path)["learners"]
    pictures = run_plots.draw_all(run, settings)
    table = run_tables.learner_table(run)
    run.folder.write("results.md", tables.markdown(table))
    run.folder.write("results.csv", tables.comma_separated(table))
    run.folder.write("results.tex", tables.latex(table))
    page = render(
        "run.html.j2",
        results=run.results,
        seconds=run.timing.seconds,
        learners=table if len(run.results.units) > 1 else None,
        tasks=run_tables.task_table(run.results) if run.results.has_tasks else None,
        pictures=pictures,
        units=[_unit(run, name, unit) for name, unit in run.results.units],
        settings=run_tables.settings_table(run.results),
        config=(path / "config.yaml").read_text(),
        environments=_environments(run),
    )
    run.folder.write("report.html", page)
    return path / "report.html"


def _unit(run: FinishedRun, name: str, unit: UnitResult) -> dict[str, Any]:
    """Return what the page says about one learner and seed."""
    events = run.last_events(name, unit.seed)
    return {
        "title": f"{name}, seed {unit.seed}",
        "numbers": run_tables.unit_table(run.results, unit, run.timing.units[name][unit.seed]),
        "events": run_tables.event_table(run.results, unit),
        "confusions": {
            event.task: run_tables.confusion_table(event.confusion)
            for event in events
            if len(event.confusion.truth) <= _FEW
        },
    }


def _environments(run: FinishedRun) -> list[str]:
    """Return what the learners were computed with; one line where it was the same for all."""
    lines = [
        ", ".join(f"{key} {value}" for key, value in unit.environment if value is not None)
        for units in run.timing.units.values()
        for unit in units.values()
    ]
    return list(dict.fromkeys(lines))
