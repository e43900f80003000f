"""Projects in the process of the test, without a server, and what a replay of their journals gives."""

import time
from contextlib import contextmanager

from coldstream.learners import ColdStart
from coldstream.serve.history import History
from coldstream.serve.live import Live
from coldstream.serve.project import Project

SMALL = {"model": "linear", "replay": 8}


@contextmanager
def opened(folder, source=None, *, start=True, **settings):
    """Give an open project, started, and close it."""
    project = Project(folder, "photos", source, **{"learner": SMALL, **settings})
    project.scan()
    try:
        if start:
            project.start()
        yield project
    finally:
        project.close()


def wait(project, seconds=60):
    """Wait until all labels are learned."""
    end = time.monotonic() + seconds
    while project.live.settled < project.records.seq:
        assert time.monotonic() < end, (project.live.state, len(project.records.pending))
        time.sleep(0.005)


def fingerprint(project):
    wait(project)
    return None if project.live.learner is None else project.live.learner.fingerprint()


def replayed(project):
    """Return the fingerprint of a new learner that does what the journal says from its beginning."""
    live = Live(project.folder, History(project))
    refused = project.records.refused
    for op in History(project).replay(0):
        if op.seq not in refused:
            live._do(op)
    assert isinstance(live.learner, ColdStart) or live.learner is None
    return None if live.learner is None else live.learner.fingerprint()
