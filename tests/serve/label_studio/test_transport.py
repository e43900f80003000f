"""Requests to Label Studio: one host, limits, the token to nobody else. The servers here are real, and hostile."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.serve.label_studio import client, transport
from coldstream.serve.label_studio.client import LabelStudio
from coldstream.serve.label_studio.transport import AnswerTooLarge, LabelStudioError, Server, read_token

TOKEN = "0123456789abcdef"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.requests.append((self.command, self.path, self.headers.get("Authorization"), body))
        answer = self.server.answer
        status, headers, data = answer(self) if callable(answer) else answer
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PATCH = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(answer):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.answer, server.requests = answer, []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://host", "http://", "http://host?x", "http://host#x", "file:///etc/passwd"]
)
def test_addresses_that_are_none(url):
    with pytest.raises(ValueError, match="http://localhost:8080"):
        Server(url, TOKEN)


def test_no_password_in_the_address():
    with pytest.raises(ValueError, match="token into a file") as error:
        Server("http://me:secret@host", TOKEN)
    assert "secret" not in str(error.value)


def test_the_token_is_read_from_a_file(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(file) == TOKEN
    for text in ("", "two words of a token", "short", f"{TOKEN}\nHost: x", "x" * 20_000):
        file.write_text(text)
        with pytest.raises(ValueError) as error:
            read_token(file)
        assert text == "" or text not in str(error.value)


def test_an_image_of_the_server_with_the_token(serve):
    server = serve((200, {}, b"image"))
    assert Server(f"{server.url}/studio/", TOKEN).file("/studio/data/upload/1/x.png?a=b") == b"image"
    assert server.requests == [("GET", "/studio/data/upload/1/x.png?a=b", f"Token {TOKEN}", None)]


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/data/latest",
        "http://localhost.evil/data/x",
        "https://127.0.0.1:{port}/data/x",
        "//elsewhere/data/x",
        "ftp://127.0.0.1:{port}/data/x",
        "file:///etc/passwd",
        "http://127.0.0.1:{port}@elsewhere/data/x",
        "http://127.0.0.1:99999999/data/x",
        "http://[::1/data/x",
        "/api/projects/1/",
        "/data/../api/projects/1/",
        "/data/%2e%2e/api/projects/1/",
        "/data/..\\api",
        "/data/x\r\nX-Header: 1",
        "/data/\x7f",
        "/user/logout",
        "data/../x",
        "",
        "javascript:alert(1)",
    ],
)
def test_other_addresses_are_not_asked(serve, address):
    server = serve((200, {}, b"secret"))
    with pytest.raises(ValueError, match="image"):
        Server(server.url, TOKEN).file(address.replace("{port}", str(server.server_port)))
    assert server.requests == []


def test_names_with_spaces_and_accents(serve):
    server = serve((200, {}, b"image"))
    Server(server.url, TOKEN).file("/data/local-files/?d=my photos/fü%20r.png")
    assert server.requests[0][1] == "/data/local-files/?d=my%20photos/f%C3%BC%20r.png"


@given(st.text(max_size=60) | st.text(max_size=60).map("/data/{}".format))
def test_any_address_is_refused_or_on_the_server(text):
    server = Server("http://127.0.0.1:1", TOKEN)
    try:
        path = server._file_path(text)
    except ValueError:
        return
    assert path.startswith(("/data/", "/storage-data/", "/tasks/", "/projects/"))
    assert ".." not in path.split("?")[0].split("/")
    assert path.isascii()
    assert path.isprintable()
    assert " " not in path


def test_redirects_on_the_server_only(serve):
    other = serve((200, {}, b"secret"))
    server = serve(
        lambda request: (302, {"Location": "/data/b"}, b"") if request.path == "/data/a" else (200, {}, b"b")
    )
    assert Server(server.url, TOKEN).file("/data/a") == b"b"
    for target in (f"{other.url}/data/x", "http://10.0.0.1/data/x", "/api/users/", ""):
        server.answer = (302, {"Location": target}, b"")
        with pytest.raises(ValueError):
            Server(server.url, TOKEN).file("/data/a")
    server.answer = (302, {"Location": "/data/a"}, b"")
    with pytest.raises(ValueError, match="redirected more than 3 times"):
        Server(server.url, TOKEN).file("/data/a")
    assert other.requests == []


def test_the_api_is_not_redirected(serve):
    other = serve((200, {}, b"{}"))
    server = serve((302, {"Location": f"{other.url}/api/projects/1/"}, b""))
    with pytest.raises(LabelStudioError, match="answers 302"):
        LabelStudio(Server(server.url, TOKEN)).project(1)
    assert other.requests == []


def test_an_image_inside_a_task():
    server = Server("http://127.0.0.1:1", TOKEN)
    assert server.file("data:image/png;base64," + base64.b64encode(b"image").decode()) == b"image"
    for address in ("data:,image", "data:image/png;base64,???", "data:image/png;base64,aGk", "data:"):
        with pytest.raises(ValueError, match="base64"):
            server.file(address)


def test_answers_are_bounded(serve, monkeypatch):
    server = serve((200, {}, b"x" * 2001))
    monkeypatch.setattr(transport, "MAX_IMAGE", 2000)
    with pytest.raises(AnswerTooLarge, match="limit of 2,000 bytes"):
        Server(server.url, TOKEN).file("/data/x")
    server.answer = (200, {"Content-Length": "9999999999"}, b"x" * 2001)
    with pytest.raises(AnswerTooLarge):
        Server(server.url, TOKEN).file("/data/x")
    with pytest.raises(ValueError, match="at most"):
        Server(server.url, TOKEN).file("data:;base64," + "A" * 3000)


def test_an_answer_that_never_ends(serve, monkeypatch):
    monkeypatch.setattr(transport, "DEADLINE", 0.0)
    server = serve((200, {}, b"x" * 100))
    with pytest.raises(LabelStudioError, match="took more than"):
        Server(server.url, TOKEN).file("/data/x")


def test_an_answer_that_is_cut(serve):
    server = serve((200, {"Content-Length": "200"}, b"x" * 100))
    with pytest.raises(LabelStudioError):
        Server(server.url, TOKEN).file("/data/x")


@pytest.mark.parametrize("data", [b"", b"x", b"[" * 100_000, b"\xff", b"[1]", b"null", b"[null]"])
def test_answers_that_are_not_what_was_asked_for(serve, data):
    studio = LabelStudio(Server(serve((200, {}, data)).url, TOKEN))
    for ask in (studio.project, studio.webhooks, studio.create_prediction, lambda number: [*studio.tasks(number)]):
        with pytest.raises(LabelStudioError) as error:
            ask(1)
        assert TOKEN not in str(error.value)


@pytest.mark.parametrize(("status", "message"), [(401, "refuses the token"), (403, "refuses"), (500, "answers 500")])
def test_errors_say_what_happened_and_hold_no_token(serve, status, message):
    server = serve((status, {}, b"some reason"))
    with pytest.raises(LabelStudioError, match=message) as error:
        LabelStudio(Server(server.url, TOKEN)).project(1)
    assert TOKEN not in str(error.value)


def test_a_server_that_is_down():
    with pytest.raises(LabelStudioError, match="does not answer"):
        LabelStudio(Server("http://127.0.0.1:1", TOKEN)).project(1)


def test_a_personal_access_token_is_exchanged_and_renewed(serve):
    personal, count = "eyJhbGciOi.eyJ0b2tlbiI6.c2lnbmF0dXJl", iter(range(9))

    def answer(request):
        if request.path == "/api/token/refresh":
            return 200, {}, json.dumps({"access": f"key-{next(count)}"}).encode()
        good = request.headers["Authorization"] == "Bearer key-1"
        return (200, {}, b'{"id": 1}') if good else (401, {}, b"")

    server = serve(answer)
    studio = LabelStudio(Server(server.url, personal))
    assert studio.project(1) == {"id": 1}
    assert studio.project(1) == {"id": 1}
    assert [(path, authorization, body) for _, path, authorization, body in server.requests] == [
        ("/api/token/refresh", None, {"refresh": personal}),
        ("/api/projects/1/", "Bearer key-0", None),
        ("/api/token/refresh", None, {"refresh": personal}),
        ("/api/projects/1/", "Bearer key-1", None),
        ("/api/projects/1/", "Bearer key-1", None),
    ]


def listing(total, body=""):
    """Return an answer that lists tasks as Label Studio does: those after an id, a page at a time."""
    from urllib.parse import parse_qs, urlsplit

    def answer(request):
        asked = parse_qs(urlsplit(request.path).query)
        query = json.loads(asked["query"][0])
        (last,) = [one["value"] for one in query["filters"]["items"] if one["filter"] == "filter:tasks:id"]
        ids = range(last + 1, min(total, last + int(asked["page_size"][0])) + 1)
        return 200, {}, json.dumps({"tasks": [{"id": number, "data": body} for number in ids]}).encode()

    return answer


@pytest.mark.parametrize("total", [0, 1, 99, 100, 101, 250])
def test_all_tasks_are_listed(serve, total):
    studio = LabelStudio(Server(serve(listing(total)).url, TOKEN))
    assert [task["id"] for task in studio.tasks(1)] == [*range(1, total + 1)]


def test_pages_shrink_where_tasks_hold_images(serve, monkeypatch):
    monkeypatch.setattr(transport, "MAX_JSON", 10_000)
    studio = LabelStudio(Server(serve(listing(120, "x" * 500)).url, TOKEN))
    assert [task["id"] for task in studio.tasks(1)] == [*range(1, 121)]
    studio = LabelStudio(Server(serve(listing(2, "x" * 50_000)).url, TOKEN))
    with pytest.raises(AnswerTooLarge):
        [*studio.tasks(1)]


def test_a_listing_that_repeats_itself_ends(serve):
    tasks = json.dumps({"tasks": [{"id": 1}] * client.PAGE}).encode()
    studio = LabelStudio(Server(serve((200, {}, tasks)).url, TOKEN))
    with pytest.raises(LabelStudioError, match="order"):
        [*studio.tasks(1)]
