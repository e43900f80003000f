"""Networks, growing heads and the weights to start from."""

from coldstream.models.network import Body, Head
from coldstream.models.registry import MODELS, ModelLike, check_model
from coldstream.models.split import Split, check_split, split, with_extra
from coldstream.models.weights import check_init, is_published, load_weights

__all__ = [
    "MODELS",
    "Body",
    "Head",
    "ModelLike",
    "Split",
    "check_init",
    "check_model",
    "check_split",
    "is_published",
    "load_weights",
    "split",
    "with_extra",
]
