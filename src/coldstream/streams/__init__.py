"""Orderings and their test events."""

from typing import TYPE_CHECKING

from coldstream._lazy import attribute_loader

if TYPE_CHECKING:
    from coldstream.streams.canonical import sorted_by_content
    from coldstream.streams.class_order import draw_class_order, read_class_order
    from coldstream.streams.orderings import make_stream
    from coldstream.streams.registry import ORDERINGS
    from coldstream.streams.stream import Event, Stream
    from coldstream.streams.tasks import Task, TaskStream, make_task_stream

__all__ = [
    "ORDERINGS",
    "Event",
    "Stream",
    "Task",
    "TaskStream",
    "draw_class_order",
    "make_stream",
    "make_task_stream",
    "read_class_order",
    "sorted_by_content",
]
__getattr__ = attribute_loader(
    __name__,
    {
        **dict.fromkeys(("draw_class_order", "read_class_order"), "class_order"),
        **dict.fromkeys(("Task", "TaskStream", "make_task_stream"), "tasks"),
        **dict.fromkeys(("Event", "Stream"), "stream"),
        "ORDERINGS": "registry",
        "make_stream": "orderings",
        "sorted_by_content": "canonical",
    },
)
