"""The reference of the HTTP API as one plain page, made from its OpenAPI document. It needs no script."""

from __future__ import annotations

from html import escape
from typing import Any


def page(document: dict[str, Any]) -> str:
    """Return the page."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Coldstream HTTP API</title>",
        "<h1>HTTP API</h1><p>The same for machines: <a href=openapi.json>openapi.json</a>.</p>",
    ]
    for path, verbs in document["paths"].items():
        for verb, route in verbs.items():
            parts.append(f"<h2><code>{verb.upper()} {escape(path)}</code></h2>")
            parts.append(f"<p>{escape(route.get('description', ''))}</p>")
            rows = [
                (one["name"], f"{one['in']}{', required' if one.get('required') else ''}", _kind(one["schema"]))
                for one in route.get("parameters", [])
            ]
            for kind, content in route.get("requestBody", {}).get("content", {}).items():
                schema = _resolved(document, content["schema"])
                required = schema.get("required", ())
                rows += [
                    (name, f"body ({kind}){', required' if name in required else ''}", _kind(one))
                    for name, one in schema.get("properties", {}).items()
                ]
            if rows:
                cells = "".join(
                    "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
                )
                parts.append(f"<table><tr><th>name</th><th>where</th><th>what</th></tr>{cells}</table>")
    return "".join(parts)


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if (place := schema.get("$ref")) is None:
        return schema
    resolved: dict[str, Any] = document["components"]["schemas"][place.rpartition("/")[2]]
    return resolved


def _kind(schema: dict[str, Any]) -> str:
    """Return in words what a value may be."""
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    limits = [
        f"{words} {schema[name]}"
        for name, words in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("exclusiveMinimum", "above"),
            ("exclusiveMaximum", "below"),
            ("maxLength", "characters at most"),
        )
        if name in schema
    ]
    return ", ".join([str(schema.get("type", "anything")), *limits])
