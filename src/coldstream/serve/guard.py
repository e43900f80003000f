"""Who may ask: Host and Origin are checked, a token if there is one, and how much may be sent."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY = 20_000_000
COOKIE = "coldstream_token"
LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_HEADERS = [
    (b"content-security-policy", _CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]


class _Refusal(Exception):
    def __init__(self, status: int, message: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or []


class Guard:
    """Passes on the requests that may be answered, and adds headers to all answers.

    Parameters
    ----------
    app
        The application behind it.
    token
        What requests must carry, or None: then only names of this machine are accepted as Host.
    max_body
        The most bytes that a request may have.
    """

    def __init__(self, app: App, token: str | None, max_body: int = MAX_BODY) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a websocket: nothing here speaks that

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message.get("headers", [])}
                extra = [one for one in _HEADERS if one[0] not in present]
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        try:
            headers = _headers(scope)
            self._check_host(headers)
            self._check_origin(scope, headers)
            cookie = self._check_token(scope, headers)
            limited = _Limited(headers, receive, self._max_body)
        except _Refusal as refusal:
            await _answer(send_with_headers, refusal)
            return
        if cookie is not None:
            await _set_cookie(scope, send_with_headers, cookie)
            return
        await self._app(scope, limited.receive, limited.sender(send_with_headers))

    def _check_host(self, headers: dict[bytes, list[bytes]]) -> None:
        """Refuse a Host that is not a name of this machine: another site's name was pointed here (DNS rebinding)."""
        hosts = headers.get(b"host", [])
        if len(hosts) != 1:
            raise _Refusal(400, "a request has one Host header")
        name = _host_name(hosts[0])
        if name is None:
            raise _Refusal(400, "the Host header is not a host name")
        if self._token is None and name not in LOCAL:
            raise _Refusal(421, "this server answers at 127.0.0.1 and localhost only; ask it there")

    def _check_origin(self, scope: Scope, headers: dict[bytes, list[bytes]]) -> None:
        """Refuse what another site's page makes a browser send."""
        if scope["method"] in _SAFE_METHODS:
            return
        host = headers[b"host"][0].lower()
        origins = headers.get(b"origin", [])
        if len(origins) > 1 or any(_authority(origin) != host for origin in origins):
            raise _Refusal(403, "this request comes from another site's page; it was not done")
        if headers.get(b"sec-fetch-site", [b"none"])[0] not in (b"same-origin", b"none"):
            raise _Refusal(403, "this request comes from another site's page; it was not done")

    def _check_token(self, scope: Scope, headers: dict[bytes, list[bytes]]) -> bytes | None:
        """Refuse a request without the token; return the token if it came in the address and belongs in a cookie."""
        if self._token is None:
            return None
        for text in headers.get(b"authorization", []):
            if self._is_token(_from_authorization(text)):
                return None
        for text in headers.get(b"cookie", []):
            if self._is_token(_from_cookie(text)):
                return None
        for given in parse_qs(scope["query_string"].decode("latin-1")).get("token", []):
            if scope["method"] == "GET" and self._is_token(given.encode("utf-8", "replace")):
                return self._token
        raise _Refusal(
            401,
            "this server needs its token: open the address that it printed, or send Authorization: Bearer TOKEN",
            [(b"www-authenticate", b'Basic realm="coldstream", charset="UTF-8"')],
        )

    def _is_token(self, given: bytes | None) -> bool:
        assert self._token is not None
        return given is not None and hmac.compare_digest(given, self._token)


class _Limited:
    """A request whose body ends with an error beyond the limit, however long it says it is."""

    def __init__(self, headers: dict[bytes, list[bytes]], receive: Receive, limit: int) -> None:
        self._receive, self._limit, self._total = receive, limit, 0
        self._refusal = _Refusal(413, f"a request has at most {limit:,} bytes; send fewer or smaller images")
        for length in headers.get(b"content-length", []):
            if not length.isdigit() or len(length) > 15 or int(length) > limit:
                raise self._refusal

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next part of the request."""
        message = await self._receive()
        self._total += len(message.get("body", b""))
        if self._total > self._limit:
            raise self._refusal
        return message

    def sender(self, send: Send) -> Send:
        """Return a `send` that answers with the refusal where the body was too long."""
        refused = False

        async def sender(message: MutableMapping[str, Any]) -> None:
            nonlocal refused
            if self._total <= self._limit:
                await send(message)
            elif not refused and message["type"] == "http.response.start":
                refused = True
                await _answer(send, self._refusal)

        return sender


def _headers(scope: Scope) -> dict[bytes, list[bytes]]:
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value)
    return headers


def _host_name(host: bytes) -> str | None:
    """Return the name in a Host header, without its port; None where it is none."""
    try:
        text = host.decode("ascii").lower()
        parts = urlsplit(f"//{text}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return name


def _authority(origin: bytes) -> bytes | None:
    scheme, _, rest = origin.lower().partition(b"://")
    return rest if scheme in (b"http", b"https") else None


def _from_authorization(value: bytes) -> bytes | None:
    kind, _, rest = value.partition(b" ")
    if kind.lower() == b"bearer":
        return rest.strip()
    if kind.lower() == b"basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return None
    return None


def _from_cookie(value: bytes) -> bytes | None:
    try:
        morsel = SimpleCookie(value.decode("latin-1")).get(COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value.encode("utf-8", "replace")


async def _answer(send: Send, refusal: _Refusal) -> None:
    body = json.dumps({"error": str(refusal), "field": None}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *refusal.headers]
    # What is left of the request is not read.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _set_cookie(scope: Scope, send: Send, token: bytes) -> None:
    """Put the token into a cookie, and send the browser to the same address without it."""
    query = "&".join(
        part for part in scope["query_string"].decode("latin-1").split("&") if not part.startswith("token=")
    )
    target = "/" + scope["raw_path"].decode("latin-1").lstrip("/\\") + (f"?{query}" if query else "")
    cookie = COOKIE.encode() + b"=" + token + b"; Path=/; HttpOnly; SameSite=Strict"
    headers = [(b"location", target.encode("latin-1")), (b"set-cookie", cookie), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
