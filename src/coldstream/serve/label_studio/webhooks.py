"""The webhook through which Label Studio tells of labels: there, and with the token that it has to send."""

from __future__ import annotations

import urllib.parse
from typing import Any

from coldstream.serve.label_studio.client import LabelStudio
from coldstream.serve.label_studio.transport import LabelStudioError

Json = dict[str, Any]


def backend_path(name: str) -> str:
    """Return the path at which a project is a backend of Label Studio."""
    return f"/label-studio/{name}"


def backend_of(backends: list[Json], name: str) -> Json | None:
    """Return the backend, of those of a Label Studio project, that is this project here."""
    return next((one for one in backends if _path(one).endswith(backend_path(name))), None)


def check_webhook(studio: LabelStudio, project: int, backend: Json, name: str, token: str | None) -> str:
    """See that a project's webhook is there; return ``ok``, or in words what is wrong.

    Label Studio creates the webhook together with the backend, but not where its protection against requests to
    local addresses steps in between. It never gives the webhook the backend's password.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    hooks = [one for one in studio.webhooks(project) if _path(one).endswith(f"{backend_path(name)}/webhook")]
    try:
        if not hooks:
            url = f"{str(backend['url']).rstrip('/')}/webhook"
            values = {"url": url, "send_payload": True, "send_for_all_actions": True, "is_active": True}
            studio.create_webhook({"project": project, "headers": headers} | values)
        for hook in hooks:
            if not headers.items() <= (hook.get("headers") or {}).items():
                studio.change_webhook(hook["id"], {"headers": {**(hook.get("headers") or {}), **headers}})
    except LabelStudioError as error:
        return f"cannot be set up, so labels come with the listings alone: {error}"
    if hooks and not any(hook.get("is_active") for hook in hooks):
        return "is switched off in Label Studio, so labels come with the listings alone"
    return "ok"


def _path(value: Json) -> str:
    try:
        return urllib.parse.urlsplit(str(value.get("url"))).path.rstrip("/")
    except ValueError:
        return ""
