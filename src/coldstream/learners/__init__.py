"""The learners: one file per method, all under one contract."""

from coldstream.learners.base import Learner
from coldstream.learners.cssl import CSSL
from coldstream.learners.er import ER
from coldstream.learners.linear_probe import LinearProbe
from coldstream.learners.offline import OfflineRecipe, train_offline
from coldstream.learners.remind import REMIND

LEARNERS: dict[str, type[Learner]] = {"cssl": CSSL, "er": ER, "linear-probe": LinearProbe, "remind": REMIND}

__all__ = ["CSSL", "ER", "LEARNERS", "REMIND", "Learner", "LinearProbe", "OfflineRecipe", "train_offline"]
