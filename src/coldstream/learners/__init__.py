"""The learners: one file per method, all under one contract."""

from coldstream.learners.base import Learner
from coldstream.learners.cssl import CSSL
from coldstream.learners.offline import OfflineRecipe, train_offline

LEARNERS: dict[str, type[Learner]] = {"cssl": CSSL}

__all__ = ["CSSL", "LEARNERS", "Learner", "OfflineRecipe", "train_offline"]
