"""Tables as text."""

import csv
import io

from rich.console import Console

from coldstream.report import tables

TABLE = [["", "Ω_all ± sd", "50% | half"], ["a_b, <c>", "1.0 ± 0.1", "–"]]
NAMES = [
    "<script>alert(1)</script>",
    "[x](javascript:1)",
    "a | b \\| `c",
    "&lt;",
    r"\input{secret}",
    r"$\frac{$",
    "=HYPERLINK(1)",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1)",
    "[/b]",
    "*x ~ ^ # % & _ {",
    "two\nlines\x1b[31m",
    "caf\udce9",
]
NUMBERS = ["-0.125 ± 0.5", "+12.5%", "0.318", "-3", "< 0.05", "1,234 / 5,678 B", "–"]
"""What a table shows must be left as it is."""


def test_markdown():
    assert tables.markdown(TABLE) == (
        "|  | Ω_all ± sd | 50% \\| half |\n|---|---|---|\n| a_b, &lt;c> | 1.0 ± 0.1 | – |\n"
    )


def test_html():
    assert tables.html(TABLE) == (
        '<div class="wide"><table><tr><th></th><th>Ω_all ± sd</th><th>50% | half</th></tr>'
        "<tr><td>a_b, &lt;c&gt;</td><td>1.0 ± 0.1</td><td>–</td></tr></table></div>"
    )
    assert "<th>" not in tables.html(TABLE, header=False)


def test_csv():
    assert list(csv.reader(tables.comma_separated(TABLE).splitlines())) == TABLE


def test_latex():
    lines = tables.latex(TABLE).splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert lines[2] == r" & $\Omega$\_all $\pm$ sd & 50\% \textbar{} half \\"
    assert lines[4] == r"a\_b, \textless{}c\textgreater{} & 1.0 $\pm$ 0.1 & -- \\"


def test_console_neither_cuts_nor_breaks_the_first_column():
    table = [["learner", "x"], ["a very long name of a learner", "1" * 20]]
    console = Console(width=max(24, tables.least_width(table)), record=True, file=io.StringIO())
    console.print(tables.console(table, "t"))
    assert "│ a very long name of a learner │ 1111111… │" in console.export_text()


def table_of(names):
    return [["learner", "n"], *([name, "1"] for name in names)]


def test_no_name_is_markup_in_markdown():
    lines = tables.markdown(table_of(NAMES)).splitlines()
    assert len(lines) == len(NAMES) + 2
    shown = dict(zip(NAMES, lines[2:], strict=True))
    assert shown[NAMES[0]] == "| &lt;script>alert(1)&lt;/script> | 1 |"
    assert shown[NAMES[1]] == "| \\[x](javascript:1) | 1 |"
    assert shown[NAMES[2]] == "| a \\| b \\\\\\| \\`c | 1 |"
    assert shown["&lt;"] == "| &amp;lt; | 1 |"
    assert shown["caf\udce9"] == "| caf\\\\xe9 | 1 |"
    assert shown["two\nlines\x1b[31m"] == "| two\\\\nlines\\\\x1b\\[31m | 1 |"
    for number in NUMBERS:
        assert tables.markdown_cell(number) == number


def test_no_name_is_a_command_in_latex():
    text = tables.latex(table_of(NAMES))
    assert "\\input" not in text
    assert r"\textbackslash{}input\{secret\}" in text
    assert r"\$\textbackslash{}frac\{\$" in text
    for line in text.splitlines()[4:-2]:
        assert line.endswith(r"1 \\")
        assert not line.startswith(("[", "*"))  # they would be arguments of the end of the line before
    assert len(text.splitlines()) == len(NAMES) + 6


def test_no_name_is_a_formula_in_csv():
    lines = list(csv.reader(tables.comma_separated(table_of(NAMES)).splitlines()))
    assert len(lines) == len(NAMES) + 1
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell, _ in lines)
    assert ["'=HYPERLINK(1)", "1"] in lines
    for number in NUMBERS:
        assert tables.csv_cell(number) == number


def test_names_are_shown_in_html_and_on_the_console_as_they_are():
    text = tables.html(table_of(NAMES))
    assert "<script" not in text
    assert "caf\\xe9" in text
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(tables.console(table_of(NAMES), "[/title]"))
    text = console.export_text()
    for name in ("[/title]", "[/b]", "[x](javascript:1)", "two\\nlines\\x1b[31m", "caf\\xe9"):
        assert name in text
