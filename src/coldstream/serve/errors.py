"""What a person can be told: requests that are refused, and why."""

from __future__ import annotations


class Refused(ValueError):
    """A request that cannot be done as it is; nothing was changed.

    Parameters
    ----------
    message
        What was wrong and what to do.
    field
        The part of the request that was wrong, such as ``body.label``.
    status
        The status that HTTP answers with.
    """

    def __init__(self, message: str, field: str | None = None, status: int = 422) -> None:
        super().__init__(message)
        self.field = field
        self.status = status
