"""Names of others stay text; the page can be read: in the dark, on a phone, by a screen reader."""

import re
import unicodedata
from pathlib import Path

import pytest

import coldstream
from benchmarks.browsing import wait_until
from page_sessions import Person

PAGE = Path(coldstream.__file__).parent / "serve" / "page"
PROJECTS = {"names": ({"count": 20}, {}), "looks": ({"count": 20}, {"audit": 0.5})}
HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "\"'><script>window.hacked=1</script>",
    "{{7*7}} ${window.hacked=1}",
    "javascript:window.hacked=1",
    "__proto__",
    "constructor",
    "../../etc/passwd",
    "gnp.\u202eexe",
    "\u00e9" * 90,
    "W" * 200,
    "&lt;b&gt; &amp;",
    "🦊 / \\ ? # % +",
]
VIEWS = ("label", "gallery", "knows", "files")


@pytest.fixture(scope="module")
def looks(site):
    """Label some images, so that every view has something to show."""
    site.label_by_api("looks", 8)


def test_hostile_names_stay_text(person, site, context):
    someone = person("names")
    someone.page.evaluate("addEventListener('securitypolicyviolation', () => window.violated = true)")
    for name in HOSTILE:
        someone.type(unicodedata.normalize("NFD", name))
    someone.wait_until_labelled(len(HOSTILE))
    assert someone.classes() == HOSTILE
    assert someone.strip() == HOSTILE[::-1]
    someone.page.locator("#strip button").nth(3).click()
    assert someone.page.locator("#correct-classes .name").all_text_contents() == HOSTILE
    someone.page.keyboard.press("Escape")
    someone.page.get_by_role("button", name="Rename, merge").click()
    assert someone.page.locator("#rename-class option").all_text_contents() == HOSTILE
    someone.page.keyboard.press("Escape")
    for view in VIEWS:
        someone.page.goto(f"{site.url}/?project=names#{view}")
        someone.page.wait_for_timeout(200)
    wait_until(lambda: site.status("names")["learning"]["behind"] == 0, "it learns them")
    someone.page.goto(f"{site.url}/?project=names#gallery")
    someone.page.select_option("#gallery-class", HOSTILE[0])
    wait_until(lambda: someone.page.locator("#gallery li").count() == 1, "one image has the first name")
    someone.page.locator("#gallery li").click()
    state = someone.page.evaluate("[window.hacked, window.violated, document.querySelectorAll('.name *').length]")
    assert state == [None, None, 0]


def test_the_page_refuses_markup_even_if_asked(person):
    someone = person("looks")
    refused = someone.page.evaluate(
        """() => {
          try { document.createElement("p").innerHTML = "<b>x</b>"; } catch (error) { return error.name; }
        }"""
    )
    assert refused == "TypeError"
    someone.errors.clear()  # the browser reports the attempt


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_no_inline_code_and_no_other_host(path):
    text = path.read_text()
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)
    if path.suffix == ".js":
        assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    if path.suffix == ".html":
        assert not re.findall(r"\son[a-z]+=|\sstyle=|<style|<script(?! type=\"module\" src=)", text)


CONTRASTS = """() => {
  const parse = (color) => (color.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.checkVisibility()) continue;
    if (node.closest(":disabled, .toast, .visually-hidden, option, svg")) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${walker.currentNode.textContent.trim()}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
NAMELESS = """() => [...document.querySelectorAll("button, a, input, select, [role=listbox], dialog, img, nav")]
  .filter((node) => node.checkVisibility())
  .filter((node) => !(node.ariaLabel || node.labels?.length || node.textContent.trim() || node.title
    || node.getAttribute("aria-labelledby") || node.hasAttribute("alt")))
  .map((node) => node.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_and_controls_have_names(browser, site, looks, scheme):
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
    try:
        someone = Person(context.new_page(), site, "looks").open()
        grounds = set()
        for view in VIEWS:
            someone.page.goto(f"{site.url}/?project=looks#{view}")
            someone.page.wait_for_timeout(300)
            assert someone.page.evaluate(CONTRASTS) == []
            assert someone.page.evaluate(NAMELESS) == []
            grounds.add(someone.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        [ground] = grounds
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == (scheme == "dark")
        assert not someone.errors
    finally:
        context.close()


@pytest.mark.parametrize("size", [(360, 640), (844, 390), (2560, 1440)])
def test_every_width_shows_everything_without_scrolling_sideways(browser, site, looks, size):
    width, height = size
    phone = min(size) < 500
    context = browser.new_context(viewport={"width": width, "height": height}, has_touch=phone, is_mobile=phone)
    try:
        someone = Person(context.new_page(), site, "looks").open()
        for view in VIEWS:
            someone.page.goto(f"{site.url}/?project=looks#{view}")
            someone.page.wait_for_timeout(200)
            assert someone.page.evaluate("document.documentElement.scrollWidth") <= width
        someone.page.goto(f"{site.url}/?project=looks#label")
        for control in ("#picture img", "#accept", "#classes button >> nth=0"):
            box = someone.page.locator(control).bounding_box()
            assert box["width"] >= 40
            assert box["height"] >= 40
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        picture = someone.page.locator("#picture img").bounding_box()
        assert picture["height"] >= 0.25 * height
        assert picture["y"] + picture["height"] <= height
    finally:
        context.close()


def test_motion_stops_where_it_is_not_wanted(browser, site):
    context = browser.new_context(reduced_motion="reduce")
    try:
        someone = Person(context.new_page(), site, "looks").open()
        someone.page.evaluate("document.getElementById('learning').dataset.state = 'learning'")
        moving = "getComputedStyle(document.getElementById('learning'), '::before').animationName"
        assert someone.page.evaluate(moving) == "none"
    finally:
        context.close()
