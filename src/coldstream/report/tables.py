"""A table as Markdown, HTML, CSV, LaTeX or for the console."""

from __future__ import annotations

import csv
import io
import re
from html import escape
from typing import TYPE_CHECKING

from coldstream.parsing import plain

if TYPE_CHECKING:
    import rich.table

Table = list[list[str]]
"""Lines of cells, the header first."""


_MARKDOWN = re.compile(r"[\\|\[`]")
_TAG = re.compile(r"<(?=[A-Za-z/!?])|&(?=#|\w+;)")
_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%_#${}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
        **{"[": "{[}", "*": "{*}"},  # after the end of a line they would be its arguments
        **{"±": r"$\pm$", "Ω": r"$\Omega$", "–": "--"},
    }
)
_NUMBER = re.compile(r"[-+]?[\d.,]+%?( ± [\d.]+%?)?")


def markdown_cell(cell: str) -> str:
    """Return text that Markdown shows as it is, without markup, tags and links."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", plain(cell))
    return _TAG.sub(lambda match: escape(match.group()), escaped)


def latex_cell(cell: str) -> str:
    """Return text that LaTeX shows as it is, without commands."""
    return plain(cell).translate(_LATEX)


def csv_cell(cell: str) -> str:
    """Return text that a spreadsheet does not take for a formula."""
    shown = plain(cell)
    return f"'{shown}" if shown[:1] in tuple("=+-@") and not _NUMBER.fullmatch(shown) else shown


def markdown(table: Table) -> str:
    """Return a table in Markdown."""
    header, *lines = [f"| {' | '.join(map(markdown_cell, line))} |" for line in table]
    return "\n".join([header, "|" + "---|" * len(table[0]), *lines]) + "\n"


def html(table: Table, *, header: bool = True) -> str:
    """Return a table in HTML; without `header`, the first line is like the others."""
    tags = ["th" if header else "td", *["td"] * (len(table) - 1)]
    lines = [
        f"<tr>{''.join(f'<{tag}>{escape(plain(cell))}</{tag}>' for cell in line)}</tr>"
        for tag, line in zip(tags, table, strict=True)
    ]
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def comma_separated(table: Table) -> str:
    """Return a table as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([csv_cell(cell) for cell in line] for line in table)
    return out.getvalue()


def latex(table: Table) -> str:
    """Return a table in LaTeX, for the booktabs package."""
    header, *lines = [" & ".join(map(latex_cell, line)) + r" \\" for line in table]
    begin = [rf"\begin{{tabular}}{{l{'r' * (len(table[0]) - 1)}}}", r"\toprule", header, r"\midrule"]
    return "\n".join([*begin, *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def least_width(table: Table) -> int:
    """Return the least width at which a table shows its first column uncut, and part of the others."""
    longest = [max(len(plain(line[place])) for line in table) for place in range(len(table[0]))]
    return sum([longest[0], *(min(8, other) for other in longest[1:])]) + 3 * len(longest) + 1


def console(table: Table, title: str) -> rich.table.Table:
    """Return a table for a terminal that is at least `least_width` wide.

    The first column is neither cut nor broken over lines, so that names can be told apart.
    """
    from rich.table import Table as ConsoleTable
    from rich.text import Text

    shown = ConsoleTable(title=Text(plain(title)), title_justify="left")
    for place, name in enumerate(table[0]):
        first = place == 0
        shown.add_column(Text(plain(name)), justify="left" if first else "right", no_wrap=first, overflow="ellipsis")
    for line in table[1:]:
        shown.add_row(*(Text(plain(cell)) for cell in line))
    return shown
