"""Networks, growing heads and the weights to start from."""

from coldstream.models.classifier import Classifier
from coldstream.models.registry import MODELS, ModelLike, check_model
from coldstream.models.weights import check_init, load_weights

__all__ = ["MODELS", "Classifier", "ModelLike", "check_init", "check_model", "load_weights"]
