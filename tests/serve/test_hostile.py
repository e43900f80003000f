"""Hostile requests, made from the API's own OpenAPI document: none is answered with an error of the server's."""

import http.client
import json
import os
import random
import string
from urllib.parse import quote

import pytest

from coldstream.serve.journal import FILE, verify
from live_project import asked, fingerprint, replayed
from serving import label_of, picture, write_pictures

REQUESTS = int(os.environ.get("COLDSTREAM_REQUESTS", "100000"))
TEXTS = [
    *(
        "",
        " ",
        "\0",
        "a\nb",
        "../../etc/passwd",
        "%00",
        "=1+1",
        "<script>alert(1)</script>",
        "'; DROP TABLE events;--",
    ),
    *("x" * 300, "x" * 5000, "\ud800", "\u202ecat", "é", "🐦" * 60, "null", "NaN", "constructor", "__proto__"),
]
NUMBERS = [0, -1, 1, 0.5, 0.95, 1e308, -1e308, 10**400, 2**53, 2**63, 2**64, float("nan"), float("inf"), True]
ODD = [None, [], {}, [[]], [None], {"a": 1}, [[[[[[]]]]]], "x", 1, False]
TYPES = [
    "application/json",
    "text/plain",
    "multipart/form-data",
    "multipart/form-data; boundary=b",
    "",
    "a/b",
    "\x7f",
]


class Generator:
    """Makes requests: near to what the document allows, or far from it."""

    def __init__(self, document, images, seed):
        self.document, self.images = document, images
        self.draws = random.Random(seed)
        self.routes = [
            (verb.upper(), path, route)
            for path, verbs in document["paths"].items()
            for verb, route in verbs.items()
            if not path.endswith("/events")
        ]

    def request(self):
        verb, path, route = self.draws.choice(self.routes)
        query = []
        for one in route.get("parameters", []):
            if one["in"] == "path":
                path = path.replace(f"{{{one['name']}}}", quote(self.part(one["name"]), safe=""))
            elif self.draws.random() < 0.6:
                for _ in range(self.draws.choice([1, 1, 2])):
                    query.append(f"{quote(one['name'])}={quote(self.plain(self.value(one['schema'])))}")
        if self.draws.random() < 0.05:
            query.append("".join(self.draws.choices("&=%;?#[]0aé", k=20)).encode("utf-8").hex())
        if self.draws.random() < 0.05:
            verb = self.draws.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
        body, headers = self.body(route)
        if self.draws.random() < 0.05:
            headers["Range"] = self.draws.choice(["bytes=0-", "bytes=-1", "x", "bytes=9-1"])
        if self.draws.random() < 0.05:
            headers["Authorization"] = self.draws.choice(["Basic ?", "Bearer", "x", "Basic " + "A" * 500])
        return verb, path + ("?" + "&".join(query) if query else ""), body, headers

    def part(self, name):
        draw = self.draws.random()
        if draw < 0.8 and name == "project":
            return "photos"
        if draw < 0.7 and name == "image":
            return self.draws.choice(self.images)
        return self.draws.choice([text for text in TEXTS if "\ud800" not in text]) or "x"

    def body(self, route):
        contents = route.get("requestBody", {}).get("content", {})
        if not contents or self.draws.random() < 0.1:
            return self.draws.choice([None, b"", b"{", b"\xff\xfe", b"[" * 5000, os.urandom(50)]), {}
        kind, content = self.draws.choice([*contents.items()])
        if kind == "application/json":
            value = self.value(content["schema"])
            data = json.dumps(value).encode()
            if self.draws.random() < 0.1:
                data = self.broken(data)
        else:
            part = self.draws.choice([picture(self.draws.randrange(99)), os.urandom(40), b""])
            data = (
                b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
                + part
                + b"\r\n--b--\r\n"
            )
            kind = "multipart/form-data; boundary=b"
            if self.draws.random() < 0.3:
                data = self.broken(data)
        if self.draws.random() < 0.1:
            kind = self.draws.choice(TYPES)
        return data, {"Content-Type": kind}

    def broken(self, data):
        place = self.draws.randrange(len(data) + 1)
        return data[:place] + os.urandom(self.draws.randrange(4)) + data[place + self.draws.randrange(9) :]

    def plain(self, value):
        text = value if isinstance(value, str) else json.dumps(value)
        return text.encode("utf-8", "replace").decode()

    def value(self, schema):
        if "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if self.draws.random() < 0.12:
            return self.draws.choice([*ODD, *NUMBERS, *TEXTS])
        if "anyOf" in schema:
            return self.value(self.draws.choice(schema["anyOf"]))
        if "enum" in schema:
            return self.draws.choice(schema["enum"])
        kind = schema.get("type")
        if kind == "object" or "properties" in schema:
            value = {
                name: self.value(part) for name, part in schema["properties"].items() if self.draws.random() < 0.9
            }
            if self.draws.random() < 0.05:
                value[self.draws.choice(TEXTS)] = 1
            return value
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(self.draws.choice([0, 1, 1, 2, 3]))]
        if kind in ("integer", "number"):
            return self.draws.choice([*NUMBERS, 1, 2, 3, 5, 10, 20])
        if kind == "boolean":
            return self.draws.random() < 0.5
        if kind == "null":
            return None
        draw = self.draws.random()
        if draw < 0.4:
            return self.draws.choice(self.images)
        if draw < 0.8:
            return self.draws.choice(["dark", "bright", "cat", "dog"])
        if draw < 0.9:
            return self.draws.choice(TEXTS)
        return "".join(self.draws.choices(string.printable, k=self.draws.randrange(30)))


def attack(folder, photos, count, seed):
    """Send so many hostile requests; return how often each status was answered."""
    statuses = {}
    with asked(folder, photos) as (project, client):
        for id in [*project.records.images][:6]:
            client.post("/label", image=id, label=label_of(project.records.images[id].name))
        document = client.ask("GET", "/openapi.json").json
        generator = Generator(document, [*project.records.images][:8], seed)
        people = people_in(project)
        for number in range(count):
            verb, path, body, headers = generator.request()
            try:
                answer = client.ask(verb, path, body, headers)
            except (http.client.HTTPException, ValueError):  # what the client itself cannot send
                client.close()
                continue
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
            assert answer.status < 500, (number, verb, path, body, answer.body)
            if answer.status >= 400:
                assert verb == "HEAD" or set(answer.json) == {"error", "field"}, (number, verb, path, answer.body)
                assert people_in(project) == people, (number, verb, path, body)
            people = people_in(project)
        assert client.ask("GET", "/health").json["status"] == "ok"
        assert fingerprint(project) == replayed(project)
    verify(folder / FILE)
    return statuses


def people_in(project):
    """Return what people have changed."""
    records = project.records
    return records.labelled, records.skipped, records.machine, len(records.images), len(records.classes)


def test_hostile_requests(tmp_path):
    photos = write_pictures(tmp_path / "photos", 20)
    statuses = attack(tmp_path / "project", photos, 150, 0)
    assert {200, 404, 422} <= statuses.keys()


@pytest.mark.slow
def test_many_hostile_requests(tmp_path):
    photos = write_pictures(tmp_path / "photos", 20)
    totals = {}
    for part in range(-(-REQUESTS // 5000)):
        for status, count in attack(tmp_path / f"project {part}", photos, min(REQUESTS, 5000), part).items():
            totals[status] = totals.get(status, 0) + count
        print(part, totals, flush=True)
