"""Orderings and their test events."""

from coldstream.streams.orderings import ORDERINGS, Event, Stream, make_stream

__all__ = ["ORDERINGS", "Event", "Stream", "make_stream"]
