"""Labelling in a real browser, with the keyboard and with the mouse."""

import csv
import io
import urllib.request
from urllib.parse import parse_qs, urlsplit

from benchmarks.browsing import wait_until
from page_sessions import truth

NAMES = ("session", "undo", "typing", "correct", "mouse", "guess")
PROJECTS = {name: ({"count": 40}, {"audit": 0.3}) for name in NAMES}
PROJECTS["few"] = ({"count": 5}, {})
PROJECTS["audit"] = ({"count": 20}, {"audit": 1.0})


def test_a_whole_session_by_keyboard(person, site):
    someone = person("session")
    assert someone.page.evaluate("document.activeElement.getAttribute('role')") == "combobox"
    labels, accepted = {}, 0
    while len(labels) < 40:
        right = someone.truth
        labels[someone.image] = right
        press = someone.press if len(labels) < 40 else someone.page.keyboard.press
        if right not in someone.classes():
            someone.type(right)
        elif someone.guess == right:
            accepted += 1
            press("Enter")
        else:
            press(str(someone.classes().index(right) + 1))
    someone.wait_until_labelled(40)
    someone.wait_for_text("#stage-note", "Every image has a label")
    assert someone.strip() == list(reversed(labels.values()))[:24]
    assert accepted > 5, "it has learned nothing"
    with urllib.request.urlopen(f"{site.url}/api/projects/session/export?format=csv") as answer:
        rows = list(csv.DictReader(io.StringIO(answer.read().decode())))
    assert {row["label"] for row in rows} == {"0", "1"}
    assert all(row["label"] == truth(row["name"]) for row in rows)
    assert len(rows) == 40

    # Another visit sees the same.
    again = person("session", view="gallery")
    wait_until(lambda: again.page.locator("#gallery li").count() == 40, "the gallery shows every image")
    assert sorted(again.classes()) == ["0", "1"]
    assert again.strip() == someone.strip()


def test_undo_shows_the_image_again(person, site):
    someone = person("undo")
    first = someone.image
    someone.type("left")
    second = someone.image
    someone.type("right")
    someone.wait_until_labelled(2)
    third = someone.image
    someone.press("Control+z")
    assert someone.image == second
    someone.wait_until_labelled(1)
    someone.press("Control+z")
    assert someone.image == first
    someone.wait_until_labelled(0)
    assert someone.strip() == []
    someone.type("left")
    assert someone.image == second, "the images that were shown come back in their order"
    someone.press("s")
    assert someone.image == third
    wait_until(lambda: site.status("undo")["skipped"] == 1, "the skip is on the server")
    someone.press("Control+z")
    assert someone.image == second
    wait_until(lambda: site.status("undo")["skipped"] == 0, "the skip is taken back")
    someone.page.keyboard.press("Control+z")
    someone.wait_until_labelled(0)
    someone.page.keyboard.press("Control+z")
    someone.wait_for_text("#toast", "nothing to undo")


def test_typing_finds_known_classes_and_opens_new_ones(person, site):
    someone = person("typing")
    for name in ("red fox", "red deer", "hare"):
        someone.type(name)
    options = someone.page.locator("#class-field [role=option]")
    someone.page.keyboard.press("/")
    someone.page.keyboard.type("de")
    assert options.all_text_contents() == ["red deer", "New classde"]
    before = someone.image
    someone.page.keyboard.press("Enter")  # the known class that fits
    someone.wait_for_another(before)
    someone.page.keyboard.press("/")
    someone.page.keyboard.type("red")
    assert sorted(options.all_text_contents()) == ["New classred", "red deer", "red fox"]
    before = someone.image
    someone.page.keyboard.press("ArrowUp")
    someone.page.keyboard.press("Enter")  # the last line: a new class
    someone.wait_for_another(before)
    someone.page.keyboard.press("/")
    someone.page.keyboard.type("3")  # a digit in the field is a character, not the key of a class
    someone.page.keyboard.press("Escape")
    someone.page.keyboard.press("Escape")
    assert someone.page.evaluate("document.activeElement.id") == "stage"
    someone.wait_until_labelled(5)
    counts = {one["name"]: one["count"] for one in site.status("typing")["classes"]}
    assert counts == {"red fox": 1, "red deer": 2, "hare": 1, "red": 1}
    assert someone.classes() == ["red fox", "red deer", "hare", "red"]


def test_keys_can_be_switched_off(person):
    someone = person("typing")
    someone.page.keyboard.press("?")
    someone.page.get_by_label("Keys without Ctrl act on the page").uncheck()
    someone.page.keyboard.press("Escape")
    before = someone.image
    for key in ("1", "s", "/"):
        someone.page.keyboard.press(key)
    assert someone.image == before
    assert someone.page.evaluate("document.activeElement.tagName") != "INPUT"


def test_a_label_of_the_strip_is_corrected_and_removed(person, site):
    someone = person("correct")
    someone.type("cat")
    someone.type("dog")
    someone.wait_until_labelled(2)
    assert someone.strip() == ["dog", "cat"]
    someone.page.locator("#strip button").last.click()
    dialog = someone.page.locator("#correct")
    dialog.get_by_role("button", name="dog").click()
    wait_until(lambda: someone.strip() == ["dog", "dog"], "the strip shows the correction")
    classes = {one["name"]: one["count"] for one in site.status("correct")["classes"]}
    assert classes["dog"] == 2
    someone.page.keyboard.press("Control+z")
    wait_until(lambda: someone.strip() == ["dog", "cat"], "the correction is taken back")
    someone.page.locator("#strip button").first.click()
    dialog.get_by_role("combobox").fill("bird")
    someone.page.keyboard.press("Enter")
    wait_until(lambda: someone.strip() == ["bird", "cat"], "a correction may open a class")


def test_after_a_click_enter_accepts_the_guess(person):
    someone = person("mouse")
    someone.type("0")
    someone.type("1")
    before = someone.image
    someone.page.locator("#classes button").first.click()
    someone.wait_for_another(before)
    assert someone.page.evaluate("document.activeElement.id") == "stage"
    guess = wait_until(lambda: someone.guess, "there is a guess, at the latest when it has learned")
    someone.press("Enter")
    assert someone.strip()[0] == guess


def test_a_guess_on_the_screen_does_not_change(person, site):
    site.label_by_api("guess", 10)
    someone = person("guess")
    late = []
    someone.page.route("**/guess?*", lambda route: late.append(route))
    someone.press("1")
    wait_until(lambda: someone.image and late, "fresh guesses for the images to come are asked for")
    someone.press("1")  # the next of them comes to the screen before the answer
    shown = someone.guess
    assert shown in ("0", "1")
    for route in late:
        images = parse_qs(urlsplit(route.request.url).query)["image"]
        other = {"label": "other", "confidence": 1.0, "ranked": [["other", 1.0]]}
        route.fulfill(json={"guesses": dict.fromkeys(images, other)})
    someone.page.wait_for_timeout(300)
    assert someone.guess == shown
    someone.press("Enter")
    assert someone.strip()[0] == shown
    someone.page.unroute("**/guess?*")


def test_a_key_held_down_labels_once(person):
    someone = person("mouse")
    someone.page.wait_for_selector("#classes button")
    labelled = someone.site.status("mouse")["labelled"]
    someone.page.keyboard.down("1")
    for _ in range(5):
        someone.page.keyboard.down("1")  # what the system sends for a key that stays down
    someone.page.keyboard.up("1")
    someone.wait_until_labelled(labelled + 1)
    assert len(someone.strip()) == labelled + 1


def test_audit_images_are_marked(person):
    someone = person("audit")
    assert someone.page.text_content("#why") == "Audit"
    someone.type("0")
    assert someone.page.locator("#strip button[data-audit]").count() == 1


def test_images_run_out(person, site):
    someone = person("few")
    for _ in range(4):
        someone.type("x") if not someone.classes() else someone.press("1")
    someone.page.keyboard.press("s")
    someone.wait_until_labelled(4)
    someone.wait_for_text("#stage-note", "1 image was skipped")
    assert someone.page.locator("#picture img").count() == 0
    someone.page.keyboard.press("1")  # there is nothing to label
    someone.press("Control+z")
    someone.page.keyboard.press("1")
    someone.wait_until_labelled(5)
    someone.wait_for_text("#stage-note", "Every image has a label")
