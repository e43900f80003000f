"""Nothing that a person did is lost or done twice: lost answers, a lost connection, a killed server, a full disk."""

import json

import pytest

from benchmarks.browsing import wait_until
from page_sessions import Person

NAMES = ("answers", "offline", "killed", "full", "refused", "reload", "tabs")
PROJECTS = {name: ({"count": 30}, {}) for name in NAMES}


def unsent(page):
    """Return the acts that the browser still keeps."""
    return page.evaluate("Object.keys(localStorage).filter((key) => key.startsWith('coldstream-outbox')).length")


def test_an_answer_that_is_lost_gives_one_label(person, site):
    someone = person("answers")
    lost = []

    def lose(route):
        route.fetch()  # the server does it, the page does not hear of it
        if len(lost) < 3:
            lost.append(json.loads(route.request.post_data)["key"])
            route.abort()
        else:
            route.continue_()

    someone.page.route("**/label", lose)
    someone.type("0")
    wait_until(lambda: unsent(someone.page) == 0, "the page sends it again until it is acknowledged")
    assert len(lost) == 3
    assert len(set(lost)) == 1
    assert [body["label"] for body in site.events("answers", "label")] == ["0"]
    someone.page.unroute("**/label")
    someone.errors.clear()  # the browser reports lost answers


def test_labels_are_kept_while_there_is_no_connection(person, site, context):
    someone = person("offline")
    someone.type("a")
    someone.type("b")
    someone.wait_until_labelled(2)
    wait_until(lambda: unsent(someone.page) == 0, "both are acknowledged")
    context.set_offline(True)
    images = []
    for key in "12":  # three images were decoded ahead
        images.append(someone.image)
        someone.press(key)
    someone.wait_for_text("#banner", "No connection")
    assert unsent(someone.page) == 2
    someone.wait_for_text("#saving", "2 labels waiting")
    before = someone.image
    someone.page.keyboard.press("Control+z")  # not sent yet: taken back here
    someone.wait_for_another(before)
    assert someone.image == images[1]
    assert unsent(someone.page) == 1
    someone.press("1")
    assert site.status("offline")["labelled"] == 2
    context.set_offline(False)
    someone.wait_until_labelled(4)
    wait_until(lambda: not someone.page.is_visible("#banner"), "the banner goes")
    labels = {body["image"]: body["label"] for body in site.events("offline", "label")}
    assert [labels[image] for image in images] == ["a", "a"]
    assert len(site.events("offline", "label")) == 4
    someone.errors.clear()


def test_what_was_not_sent_outlives_the_page(person, site, context):
    someone = person("reload")
    someone.page.route("**/label", lambda route: route.abort())
    someone.type("0")
    someone.press("1")
    assert unsent(someone.page) == 2
    someone.page.close()
    someone.errors.clear()
    assert site.status("reload")["labelled"] == 0
    again = person("reload")
    again.wait_until_labelled(2)
    wait_until(lambda: unsent(again.page) == 0, "nothing is left")
    wait_until(lambda: len(again.strip()) == 2, "the strip shows them")


def test_two_tabs_do_not_do_things_twice(person, site, context):
    first = person("tabs")
    first.page.route("**/label", lambda route: route.abort())
    for label in ("0", "1"):
        first.type(label)
    second = person("tabs")  # takes over what the first could not send
    second.wait_until_labelled(2)
    before = first.image
    first.page.unroute("**/label")
    wait_until(lambda: unsent(first.page) == 0, "the first tab has sent its own too")
    assert first.image == before
    assert len(site.events("tabs", "label")) == 2
    first.errors.clear()


def test_a_refusal_is_told_and_not_repeated(person, site):
    someone = person("refused")
    error = {"error": "the label is not one of ours", "field": "body.label"}
    someone.page.route("**/label", lambda route: route.fulfill(status=422, json=error))
    someone.type("0")
    someone.wait_for_text("#toast", "the label is not one of ours")
    wait_until(lambda: unsent(someone.page) == 0, "it is not kept")
    someone.page.unroute("**/label")
    someone.type("1")
    someone.wait_until_labelled(1)
    someone.errors.clear()


def test_a_full_disk_is_told_and_the_labels_wait(person, site):
    someone = person("full")
    full = {"error": "the disk is full", "field": None}
    someone.page.route("**/label", lambda route: route.fulfill(status=507, json=full))
    someone.type("0")
    someone.wait_for_text("#banner", "disk is full")
    someone.page.unroute("**/label")
    someone.wait_until_labelled(1)
    wait_until(lambda: not someone.page.is_visible("#banner"), "the banner goes")
    someone.errors.clear()


@pytest.mark.slow
def test_a_killed_server_gets_everything_when_it_is_back(site, context):
    someone = Person(context.new_page(), site, "killed").open()
    someone.type("0")
    someone.type("1")
    site.kill()
    try:
        someone.wait_for_text("#banner", "No connection")
        for key in "12":
            someone.press(key)
    finally:
        site.start()
    someone.wait_until_labelled(4)
    wait_until(lambda: unsent(someone.page) == 0 and not someone.page.is_visible("#banner"), "the page recovers")
    assert [body["label"] for body in site.events("killed", "label")] == ["0", "1", "0", "1"]
    someone.press("1")
    someone.wait_until_labelled(5)
