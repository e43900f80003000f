"""Printing: tables, lines and error messages."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

console = Console()
complaints = Console(stderr=True)


def say(text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def complain(text: str) -> None:
    complaints.print(Text(text), soft_wrap=True)


def show(table: list[list[str]], title: str) -> None:
    from coldstream.report import tables

    wide = max(console.width, tables.least_width(table))  # a terminal that is too narrow breaks lines by itself
    Console(width=wide).print(tables.console(table, title))
