"""The lab: config, plan, jobs and runs of experiments."""

from coldstream.lab.config import Config, make_config
from coldstream.lab.experiment import Experiment
from coldstream.lab.jobs import Stopped
from coldstream.lab.run import run_jobs

__all__ = ["Config", "Experiment", "Stopped", "make_config", "run_jobs"]
