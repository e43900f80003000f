"""One browser and one server for all tests that a worker does."""

import pytest

from benchmarks.browsing import CHROMIUM, chromium
from page_sessions import Person, Site


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed; on Debian: apt-get install chromium")
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def site(request, browser, tmp_path_factory):
    """The server with every file's PROJECTS: name → (digits, settings)."""
    files = {item.module for item in request.session.items if "site" in item.fixturenames}
    projects = {name: project for file in files for name, project in file.PROJECTS.items()}
    site = Site(tmp_path_factory.mktemp("site"), projects)
    yield site
    site.stop()


@pytest.fixture
def context(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture
def person(site, context):
    """Somebody who opens the page of a project; the page may not report any error."""
    people = []

    def opened(project, view="label"):
        people.append(Person(context.new_page(), site, project).open(view))
        return people[-1]

    yield opened
    for someone in people:
        assert not someone.errors
