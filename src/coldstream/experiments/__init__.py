"""Experiments: config, jobs, what they come down to, and reports."""

from coldstream.experiments.config import Config, make_config
from coldstream.experiments.experiment import Experiment
from coldstream.experiments.jobs import Stopped
from coldstream.experiments.report import write_report
from coldstream.experiments.runner import run_jobs

__all__ = ["Config", "Experiment", "Stopped", "make_config", "run_jobs", "write_report"]
