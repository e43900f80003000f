"""Gallery, renaming and merging, what it knows, taking over, files: in a real browser."""

import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from benchmarks.browsing import wait_until
from page_sessions import write_digits

SMALL = {"count": 30}
PROJECTS = {name: (SMALL, {}) for name in ("gallery", "guesses", "classes", "files", "early")}
PROJECTS["knows"] = ({"count": 150}, {"audit": 1.0, "learner": {}})


def tiles(someone):
    return someone.page.locator("#gallery li")


def counts(site, project):
    return {one["name"]: one["count"] for one in site.status(project)["classes"]}


def test_several_images_of_the_gallery_are_corrected_at_once(person, site):
    site.label_by_api("gallery", 10)
    zeros = counts(site, "gallery")["0"]
    someone = person("gallery", view="gallery")
    wait_until(lambda: tiles(someone).count() == 10, "the gallery shows what is labelled")
    someone.page.select_option("#gallery-class", "0")
    wait_until(lambda: tiles(someone).count() == zeros, "the gallery shows one class")
    tiles(someone).nth(0).click()
    someone.page.keyboard.press("Shift+ArrowRight")
    assert someone.page.locator("#gallery [aria-selected=true]").count() == 2
    someone.page.keyboard.press("Escape")
    assert someone.page.locator("#gallery [aria-selected=true]").count() == 0
    someone.page.keyboard.press("Home")
    someone.page.keyboard.press("Space")
    chosen = tiles(someone).nth(0).get_attribute("data-image")
    someone.page.get_by_label("Class of the selected images").fill("oval")
    someone.page.keyboard.press("Enter")
    wait_until(lambda: tiles(someone).count() == zeros - 1, "the image has left the class")
    assert counts(site, "gallery") == {"0": zeros - 1, "1": 10 - zeros, "oval": 1}
    [event] = site.events("gallery", "relabel")
    assert event["images"] == [chosen]
    someone.page.keyboard.press("Control+a")  # the focus is not in the gallery: nothing is selected
    assert not someone.page.is_visible("#selection")


def test_a_double_click_opens_one_image(person, site):
    someone = person("gallery", view="gallery")
    wait_until(lambda: tiles(someone).count() > 0, "the gallery is there")
    tiles(someone).nth(0).dblclick()
    assert someone.page.is_visible("#correct")


def test_unlabelled_images_are_labelled_by_their_guess(person, site):
    site.label_by_api("guesses", 10)
    site.wait_until_learned("guesses")
    someone = person("guesses", view="gallery")
    someone.page.select_option("#gallery-who", "guess")

    someone.page.select_option("#gallery-class", "1")
    someone.page.wait_for_selector("#gallery[aria-busy=false] li")
    tiles(someone).nth(0).click()
    image = tiles(someone).nth(0).get_attribute("data-image")
    someone.page.get_by_role("button", name="Yes, 1").click()
    someone.wait_until_labelled(11)
    assert site.events("guesses", "label-many")[-1] == {"images": [image], "label": "1"}


def test_classes_are_renamed_and_merged(person, site):
    someone = person("classes")
    for label in ("brid", "bird", "fish"):
        someone.type(label)
    someone.wait_until_labelled(3)
    someone.page.get_by_role("button", name="Rename, merge").click()
    dialog = someone.page.locator("#rename")
    someone.page.select_option("#rename-class", "fish")
    dialog.get_by_label("New name").fill("whale")
    dialog.get_by_role("button", name="Rename").click()
    wait_until(lambda: someone.classes() == ["brid", "bird", "whale"], "the class has its new name")
    wait_until(lambda: someone.strip() == ["whale", "bird", "brid"], "the strip too")
    someone.page.get_by_role("button", name="Rename, merge").click()
    someone.page.select_option("#rename-class", "brid")
    dialog.get_by_label("New name").fill("bird")
    dialog.get_by_role("button", name="Rename").click()
    someone.wait_for_text("#rename-error", "Merge into it instead")
    dialog.get_by_role("button", name="Merge").click()
    wait_until(lambda: someone.classes() == ["bird", "whale"], "the classes are one")
    assert counts(site, "classes") == {"bird": 2, "whale": 1}


def test_a_promise_needs_audited_labels(person):
    someone = person("early", view="knows")
    someone.wait_for_text("#promise-line", "Not enough audited labels yet")
    assert someone.page.text_content("#promise-reason")
    assert not someone.page.is_visible("#take-over")


@pytest.mark.slow  # whether the audit proves anything depends on how the labels fall into updates
def test_the_network_takes_over_and_it_is_revoked(person, site):
    site.label_by_api("knows", 90)
    someone = person("knows", view="knows")
    someone.page.get_by_label("Accuracy wanted").select_option("0.8")

    def promised():
        someone.page.get_by_label("Accuracy wanted").select_option("0.85")
        someone.page.get_by_label("Accuracy wanted").select_option("0.8")
        return "by itself" in someone.page.text_content("#promise-line")

    wait_until(promised, "90 audited labels of two easy classes are enough for 80%")
    someone.wait_for_text("#promise-line", "80% accuracy")
    assert someone.page.locator("#curve svg path.line").count() == 1
    assert someone.page.locator("#reliability svg .dot").count() > 0
    assert someone.page.locator("#per-class tbody th").all_text_contents() == list(counts(site, "knows"))
    someone.page.locator("#take-over").click()
    someone.page.get_by_role("button", name="Cancel").click()
    assert site.status("knows")["machine"] == 0
    someone.page.locator("#take-over").click()
    someone.page.locator("#confirm-yes").click()
    machine = wait_until(lambda: site.status("knows")["machine"], "the network has labelled")
    someone.page.goto(f"{site.url}/?project=knows#gallery")
    someone.page.select_option("#gallery-who", "machine")
    wait_until(
        lambda: someone.page.locator("#gallery li[data-machine]").count() == min(machine, 60), "they are marked"
    )
    someone.page.keyboard.press("k")
    someone.page.get_by_role("button", name="Revoke").click()
    someone.page.locator("#confirm-yes").click()
    wait_until(lambda: site.status("knows")["machine"] == 0, "all are revoked")
    someone.wait_for_text("#accepts", "(revoked)")
    assert site.status("knows")["labelled"] == 90


def test_images_are_added_by_drop_and_by_choice(person, site, tmp_path):
    someone = person("files", view="files")
    fresh = write_digits(tmp_path / "fresh", classes=(7,), count=3)
    before = site.status("files")["images"]
    someone.page.locator("#files").set_input_files(sorted(fresh.iterdir()))
    wait_until(lambda: site.status("files")["images"] == before + 3, "the chosen images are there")
    someone.wait_for_text("#upload-state", "3 images added")
    png = io.BytesIO()
    Image.fromarray(np.full((8, 8), 77, np.uint8)).save(png, "png")
    files = [["drawn.png", list(png.getvalue())], ["broken.png", [1, 2, 3]], ["notes.txt", [65]]]
    someone.page.evaluate(
        """(files) => {
          const transfer = new DataTransfer();
          for (const [name, bytes] of files) transfer.items.add(new File([new Uint8Array(bytes)], name));
          const init = { dataTransfer: transfer, bubbles: true, cancelable: true };
          document.body.dispatchEvent(new DragEvent("dragover", init));
          document.body.dispatchEvent(new DragEvent("drop", init));
        }""",
        files,
    )
    wait_until(lambda: site.status("files")["images"] == before + 4, "the dropped image is there")
    someone.wait_for_text("#refused", "broken.png")
    assert "notes.txt" not in someone.page.text_content("#refused")
    assert not someone.page.is_visible("#drop")


def test_every_export_is_a_link_that_works(person, site):
    site.label_by_api("files", 4)
    someone = person("files", view="files")
    sizes = {}
    someone.page.wait_for_selector("#exports a")
    for link in someone.page.locator("#exports a").all():
        with someone.page.expect_download() as download:
            link.click()
        sizes[link.text_content()] = download.value.path().read_bytes()
    assert len(sizes) == 5
    assert sizes["Labels as CSV"].count(b"\n") >= 5
    assert len(sizes["Labels as JSON lines"].splitlines()) == 4
    assert len(json.loads(sizes["Label Studio JSON"])) == 4
    with zipfile.ZipFile(io.BytesIO(sizes["Images in folders (zip)"])) as folders:
        assert len([name for name in folders.namelist() if not name.endswith("/")]) == 4
    with zipfile.ZipFile(io.BytesIO(sizes["The learner (zip)"])) as learner:
        assert learner.testzip() is None
