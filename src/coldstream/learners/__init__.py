"""The learners: one file per method, all under one contract."""

from coldstream.learners.base import Learner
from coldstream.learners.cssl import CSSL
from coldstream.learners.deep_slda import DeepSLDA
from coldstream.learners.er import ER
from coldstream.learners.exstream import ExStream
from coldstream.learners.linear_probe import LinearProbe
from coldstream.learners.offline import OfflineRecipe, train_offline

LEARNERS: dict[str, type[Learner]] = {
    "cssl": CSSL,
    "er": ER,
    "linear-probe": LinearProbe,
    "deep-slda": DeepSLDA,
    "exstream": ExStream,
}

__all__ = [
    "CSSL",
    "ER",
    "LEARNERS",
    "DeepSLDA",
    "ExStream",
    "Learner",
    "LinearProbe",
    "OfflineRecipe",
    "train_offline",
]
