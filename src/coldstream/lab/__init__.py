"""The lab: config, plan, jobs and runs of experiments."""

from typing import TYPE_CHECKING

from coldstream._lazy import attribute_loader

if TYPE_CHECKING:
    from coldstream.lab.config import Config
    from coldstream.lab.experiment import Experiment
    from coldstream.lab.jobs import Stopped
    from coldstream.lab.reading import make_config
    from coldstream.lab.run import run_jobs

__all__ = ["Config", "Experiment", "Stopped", "make_config", "run_jobs"]
__getattr__ = attribute_loader(
    __name__,
    {
        "Config": "config",
        "Experiment": "experiment",
        "Stopped": "jobs",
        "make_config": "reading",
        "run_jobs": "run",
    },
)
