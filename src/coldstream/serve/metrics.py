"""Numbers for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from coldstream.serve.project import Project

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class _Projects(Collector):
    """The state of the projects at the moment of asking."""

    def __init__(self, projects: Mapping[str, Project]) -> None:
        self._projects = projects

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield a gauge for each number."""
        gauges = {
            "images": "Images",
            "labelled": "Images with a label of a person's",
            "machine": "Images with a label of the machine's",
            "remaining": "Images without a label",
            "waiting": "Labels that are not learned yet",
            "updates": "Updates with new labels",
            "failures": "How often learning failed and was begun again from a checkpoint",
            "journal_seq": "Events in the journal",
            "checkpoint_seq": "The event of the newest checkpoint",
        }
        families = {
            name: GaugeMetricFamily(f"coldstream_{name}", text, labels=["project"]) for name, text in gauges.items()
        }
        for project in self._projects.values():
            records = project.records
            values: dict[str, float] = {
                "images": len(records.images),
                "labelled": records.labelled,
                "machine": records.machine,
                "remaining": len(records.unlabelled),
                "waiting": len(records.pending),
                "updates": records.updates,
                "failures": project.live.state.failures,
                "journal_seq": records.seq,
                "checkpoint_seq": project.live.checkpoints.saved,
            }
            for name, value in values.items():
                families[name].add_metric([project.name], value)
        yield from families.values()


def add_metrics(app: FastAPI, projects: Mapping[str, Project]) -> None:
    """Count and time requests, and answer /metrics."""
    registry = CollectorRegistry()
    registry.register(_Projects(projects))
    count = Counter("coldstream_requests", "Requests answered", ["route", "status"], registry=registry)
    seconds = Histogram(
        "coldstream_request_seconds", "Seconds to answer", ["route"], buckets=_SECONDS, registry=registry
    )

    @app.middleware("http")
    async def measure(request: Request, call_next: Any) -> Any:
        begin = time.perf_counter()
        response = await call_next(request)
        route = getattr(request.scope.get("route"), "path", "other")
        count.labels(route, str(response.status_code)).inc()
        seconds.labels(route).observe(time.perf_counter() - begin)
        return response

    @app.get("/metrics")
    def metrics() -> Response:
        """Return numbers for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
