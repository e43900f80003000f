"""Strong data augmentation, drawn for each example and computed on whole batches."""

from coldstream.augment.policy import Policy

__all__ = ["Policy"]
