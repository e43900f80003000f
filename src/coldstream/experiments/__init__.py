"""Experiments: config, run loop, records, report."""

from coldstream.experiments.config import Config, make_config
from coldstream.experiments.report import event_rows, result_rows, write_report
from coldstream.experiments.run import Run

__all__ = ["Config", "Run", "event_rows", "make_config", "result_rows", "write_report"]
