"""Somebody in front of the page: a real server with projects of handwritten digits, and a real browser."""

import json
import sqlite3
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from benchmarks.browsing import Server, wait_until
from coldstream.serve.project import Project
from serving import SMALL


def write_digits(folder: Path, classes=(0, 1), count=40):
    """Write digits as PNG files; the true class is the first part of the name."""
    folder.mkdir(parents=True)
    digits = load_digits()
    chosen = [i for i, label in enumerate(digits.target) if label in classes][:count]
    for i in chosen:
        pixels = np.rint(digits.images[i] * (255 / 16)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{digits.target[i]}-{i:04}.png")
    return folder


def truth(name):
    return name.rsplit("/", 1)[-1].split("-")[0]


class Site(Server):
    """A server with some projects of digits: name → (what `write_digits` takes, settings)."""

    def __init__(self, folder: Path, projects):
        super().__init__(folder / "projects")
        for name, (digits, settings) in projects.items():
            photos = write_digits(folder / "photos" / name, **digits)
            project = Project(self.projects / name, name, photos, **{"learner": SMALL, **settings})
            project.scan()
            project.close()
        self.start()

    def label_by_api(self, project, count):
        """Label so many images with the truth, as another person would."""
        self.label(project, count, truth)

    def events(self, project, kind):
        """Return the bodies of a kind of event, read from the journal's file."""
        journal = sqlite3.connect(f"file:{self.projects / project / 'journal.sqlite3'}?mode=ro", uri=True)
        try:
            rows = journal.execute("select body from events where kind = ? order by seq", (kind,)).fetchall()
        finally:
            journal.close()
        return [json.loads(body) for (body,) in rows]


class Person:
    """Somebody who opens the page of a project and uses it."""

    def __init__(self, page, site, project):
        self.page, self.site, self.project = page, site, project
        self.errors = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)

    def open(self, view="label"):
        self.page.goto(f"{self.site.url}/?project={self.project}#{view}")
        self.page.wait_for_selector("body[data-view]")
        if view == "label":
            self.page.wait_for_selector("#picture img")
        return self

    @property
    def image(self):
        return self.page.get_attribute("#stage", "data-image")

    @property
    def truth(self):
        return truth(self.page.text_content("#file-name"))

    @property
    def guess(self):
        return self.page.text_content("#guess-label") if self.page.is_enabled("#accept") else None

    def press(self, key):
        """Press a key that goes on to another image, and wait for that."""
        before = self.image
        self.page.keyboard.press(key)
        self.wait_for_another(before)

    def type(self, label):
        """Label by typing the name of a class, new or known."""
        before = self.image
        if self.page.evaluate("document.activeElement.tagName") != "INPUT":
            self.page.keyboard.press("/")
        self.page.keyboard.insert_text(label)
        self.page.keyboard.press("Shift+Enter")
        self.wait_for_another(before)

    def wait_for_another(self, image):
        wait_until(lambda: self.image not in (image, ""), "another image is shown")

    def classes(self):
        return self.page.locator("#classes .name").all_text_contents()

    def strip(self):
        return self.page.locator("#strip .name").all_text_contents()

    def wait_until_labelled(self, count):
        wait_until(lambda: self.site.status(self.project)["labelled"] == count, f"{count} labels are on the server")

    def wait_for_text(self, selector, text):
        wait_until(lambda: text in (self.page.text_content(selector) or ""), f"{selector} says {text!r}")
