"""The parts of Label Studio's API that are used, a method for each."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from coldstream.serve.label_studio.transport import AnswerTooLarge, LabelStudioError, Server

Json = dict[str, Any]

PAGE = 100
"""Tasks asked for at once."""
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
"""The one form of a time, in UTC, that filters accept."""


class LabelStudio:
    """Projects of one Label Studio server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def project(self, project: int) -> Json:
        """Return a project's settings."""
        return self._table("GET", f"/api/projects/{project}/")

    def tasks(self, project: int, updated: datetime | None = None) -> Iterator[Json]:
        """Yield a project's tasks with their annotations and predictions, in order of id.

        Parameters
        ----------
        project
            The project's id.
        updated
            Only tasks changed after this time; a deleted annotation changes its task.
        """
        last, size = 0, PAGE
        while True:
            items: list[Json] = [
                {"filter": "filter:tasks:id", "operator": "greater", "type": "Number", "value": last}
            ]
            if updated is not None:
                since = {"filter": "filter:tasks:updated_at", "operator": "greater", "type": "Datetime"}
                items.append(since | {"value": updated.strftime(_TIME)})
            query = {"filters": {"conjunction": "and", "items": items}, "ordering": ["tasks:id"]}
            values = {"project": project, "fields": "all", "page_size": size, "query": json.dumps(query)}
            try:
                answer = self._table("GET", f"/api/tasks?{urllib.parse.urlencode(values)}")
            except AnswerTooLarge:  # images inside the tasks
                if size == 1:
                    raise
                size = max(1, size // 10)
                continue
            tasks = answer.get("tasks")
            if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
                raise LabelStudioError("Label Studio's list of tasks is not understood")
            yield from tasks
            if len(tasks) < size:
                return
            following = tasks[-1].get("id")
            if not isinstance(following, int) or following <= last:
                raise LabelStudioError("Label Studio's list of tasks is not in the order asked for")
            last = following

    def backends(self, project: int) -> list[Json]:
        """Return the machine-learning backends of a project; Label Studio asks each for its health first."""
        return self._tables("GET", f"/api/ml?project={project}")

    def webhooks(self, project: int) -> list[Json]:
        """Return the webhooks of a project."""
        return self._tables("GET", f"/api/webhooks/?project={project}")

    def create_webhook(self, values: Json) -> None:
        """Create a webhook."""
        self._table("POST", "/api/webhooks/", values)

    def change_webhook(self, webhook: int, values: Json) -> None:
        """Change a webhook."""
        self._table("PATCH", f"/api/webhooks/{webhook}/", values)

    def create_prediction(self, values: Json) -> int:
        """Create a prediction; return its id."""
        number = self._table("POST", "/api/predictions/", values).get("id")
        if not isinstance(number, int):
            raise LabelStudioError("Label Studio's answer about a new prediction is not understood")
        return number

    def change_prediction(self, prediction: int, values: Json) -> None:
        """Change a prediction."""
        self._table("PATCH", f"/api/predictions/{prediction}/", values)

    def image(self, address: str) -> bytes:
        """Return the bytes of a task's image."""
        return self.server.file(address)

    def _table(self, method: str, path: str, values: Json | None = None) -> Json:
        answer = self.server.ask(method, path, values)
        if not isinstance(answer, dict):
            raise LabelStudioError(f"Label Studio's answer to {path.split('?')[0]} is not understood")
        return answer

    def _tables(self, method: str, path: str) -> list[Json]:
        answer = self.server.ask(method, path)
        if not isinstance(answer, list) or not all(isinstance(one, dict) for one in answer):
            raise LabelStudioError(f"Label Studio's answer to {path.split('?')[0]} is not understood")
        return answer
