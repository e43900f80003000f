"""The learners: one file per method, all under one contract."""

from typing import TYPE_CHECKING, Any

from coldstream._lazy import Registry, attribute_loader

if TYPE_CHECKING:
    from coldstream.learners.base import Learner
    from coldstream.learners.cold_start import ColdStart
    from coldstream.learners.cssl import CSSL
    from coldstream.learners.deep_slda import DeepSLDA
    from coldstream.learners.der import DERpp
    from coldstream.learners.end_to_end import EndToEnd
    from coldstream.learners.er import ER
    from coldstream.learners.er_ace import ERACE
    from coldstream.learners.exstream import ExStream
    from coldstream.learners.gdumb import GDumb
    from coldstream.learners.icarl import ICaRL
    from coldstream.learners.linear_probe import LinearProbe
    from coldstream.learners.method import Example
    from coldstream.learners.offline import Offline
    from coldstream.learners.remind import REMIND
    from coldstream.learners.steps import Batch
    from coldstream.learners.tasks import TaskState
    from coldstream.learners.training.offline import OfflineRecipe, train_offline

_MODULES = {
    "CSSL": "cssl",
    "ER": "er",
    "ERACE": "er_ace",
    "REMIND": "remind",
    "Batch": "steps",
    "ColdStart": "cold_start",
    "DERpp": "der",
    "DeepSLDA": "deep_slda",
    "EndToEnd": "end_to_end",
    "ExStream": "exstream",
    "Example": "method",
    "GDumb": "gdumb",
    "ICaRL": "icarl",
    "Learner": "base",
    "LinearProbe": "linear_probe",
    "Offline": "offline",
    "OfflineRecipe": "training.offline",
    "TaskState": "tasks",
    "train_offline": "training.offline",
}
_NAMES = {
    "cold-start": "ColdStart",
    "cssl": "CSSL",
    "exstream": "ExStream",
    "deep-slda": "DeepSLDA",
    "remind": "REMIND",
    "linear-probe": "LinearProbe",
    "er": "ER",
    "er-ace": "ERACE",
    "der++": "DERpp",
    "gdumb": "GDumb",
    "icarl": "ICaRL",
    "e2eil": "EndToEnd",
    "offline": "Offline",
}
LEARNERS: "Registry[type[Learner[Any]]]" = Registry(
    {name: f"{__name__}.{_MODULES[kind]}:{kind}" for name, kind in _NAMES.items()}
)

__getattr__ = attribute_loader(__name__, _MODULES)
__all__ = [
    "CSSL",
    "ER",
    "ERACE",
    "LEARNERS",
    "REMIND",
    "Batch",
    "ColdStart",
    "DERpp",
    "DeepSLDA",
    "EndToEnd",
    "ExStream",
    "Example",
    "GDumb",
    "ICaRL",
    "Learner",
    "LinearProbe",
    "Offline",
    "OfflineRecipe",
    "TaskState",
    "train_offline",
]
