"""The replay buffer: codecs, storage, sampling and eviction. Knows nothing of networks."""

from coldstream.replay.buffer import Capacity, ReplayBuffer, one_hot
from coldstream.replay.codecs import Codec

__all__ = ["Capacity", "Codec", "ReplayBuffer", "one_hot"]
