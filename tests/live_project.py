"""Projects in the process of the test, without a server, and what a replay of their journals gives."""

import threading
import time
from contextlib import contextmanager

from coldstream.learners import ColdStart
from coldstream.serve.history import History
from coldstream.serve.live import Live
from coldstream.serve.project import Project
from coldstream.serve.server import listen, serve
from serving import Client

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


def wait(project, seconds=600):
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


@contextmanager
def served(projects, token=None):
    """Serve open projects over a real socket from a thread; give the port. They are closed afterwards."""
    listener, stopping, ready = listen("127.0.0.1", 0), threading.Event(), threading.Event()
    port = listener.getsockname()[1]
    named = {project.name: project for project in projects}
    thread = threading.Thread(target=serve, args=(named, listener, token, ready.set, None, stopping))
    thread.start()
    assert ready.wait(600)
    try:
        yield port
    finally:
        stopping.set()
        thread.join()


@contextmanager
def asked(folder, source=None, token=None, **settings):
    """Give a project that is served, and a client of it."""
    project = Project(folder, "photos", source, **{"learner": SMALL, **settings})
    project.scan()
    with served([project], token) as port:
        client = Client(port)
        try:
            yield project, client
        finally:
            client.close()
