"""The learners: one file per method, all under one contract."""

from coldstream.learners.base import Learner
from coldstream.learners.cssl import CSSL
from coldstream.learners.deep_slda import DeepSLDA
from coldstream.learners.end_to_end import EndToEnd
from coldstream.learners.er import ER
from coldstream.learners.exstream import ExStream
from coldstream.learners.gdumb import GDumb
from coldstream.learners.icarl import ICaRL
from coldstream.learners.linear_probe import LinearProbe
from coldstream.learners.offline import Offline
from coldstream.learners.remind import REMIND
from coldstream.learners.training.offline import OfflineRecipe, train_offline

LEARNERS: dict[str, type[Learner]] = {
    "cssl": CSSL,
    "exstream": ExStream,
    "deep-slda": DeepSLDA,
    "remind": REMIND,
    "linear-probe": LinearProbe,
    "er": ER,
    "gdumb": GDumb,
    "icarl": ICaRL,
    "e2eil": EndToEnd,
    "offline": Offline,
}

__all__ = [
    "CSSL",
    "ER",
    "LEARNERS",
    "REMIND",
    "DeepSLDA",
    "EndToEnd",
    "ExStream",
    "GDumb",
    "ICaRL",
    "Learner",
    "LinearProbe",
    "Offline",
    "OfflineRecipe",
    "train_offline",
]
