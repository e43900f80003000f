"""Requests to one Label Studio server, and to no other host: limits of bytes and time, no redirects away from it.

Task data comes from whoever imports tasks, so an image's address is not trusted. The token goes to the configured
host alone, and only to the API and to paths at which Label Studio serves files.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import re
import ssl
import time
import urllib.parse
from pathlib import Path
from typing import Any

Json = dict[str, Any]

MAX_JSON = 64_000_000
"""Bytes of an answer of the API."""
MAX_IMAGE = 20_000_000
"""Bytes of an image."""
TIMEOUT, DEADLINE = 10.0, 60.0
"""Seconds that the server may be silent, and that an answer may take."""
_REDIRECTS = 3
_ACCESS_SECONDS = 240
"""A personal access token gives keys that live 5 minutes."""
_FILES = re.compile(r"(data|storage-data)/|(tasks|projects)/[0-9]+/(resolve|presign)/")


class LabelStudioError(OSError):
    """Label Studio does not answer, or refuses; `status` is that of its answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def about_one_file(self) -> bool:
        """Whether asking for something else may still succeed."""
        return self.status is not None and self.status not in (401, 403, 429)


class AnswerTooLarge(LabelStudioError):
    """An answer is over the limit of bytes."""

    @property
    def about_one_file(self) -> bool:
        """Whether asking for something else may still succeed."""
        return True


class Server:
    """One Label Studio server, with a person's token.

    Parameters
    ----------
    url
        Where it is: `http://localhost:8080`.
    token
        A personal access token or a legacy token, from the account page of Label Studio.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"the address of Label Studio must look like http://localhost:8080, not {url!r}")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the address of Label Studio must not hold a password; put a token into a file")
        self.url = url.rstrip("/")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port or (443 if self._secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._token = token
        self._access: tuple[str, float] | None = None

    def ask(self, method: str, path: str, values: Json | None = None) -> Any:
        """Return the answer of the API, which must be JSON."""
        status, _, body = self._request(method, self._prefix + path, MAX_JSON, values)
        _check(status, body, path.split("?")[0])
        return _parsed(body)

    def file(self, address: str) -> bytes:
        """Return the bytes of a task's image; refuse addresses that are not of this server with a ValueError."""
        if address.startswith("data:"):
            return _inline(address)
        for _ in range(_REDIRECTS + 1):
            status, headers, body = self._request("GET", self._file_path(address), MAX_IMAGE)
            if status not in (301, 302, 303, 307, 308):
                _check(status, body, "an image")
                return body
            address = urllib.parse.urljoin(f"{self._origin}{self._file_path(address)}", headers.get("Location") or "")
        raise ValueError(f"the image is redirected more than {_REDIRECTS} times")

    @property
    def _origin(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._secure else 'http'}://{host}:{self._port}"

    def _file_path(self, address: str) -> str:
        """Return the path and query of an image's address on this server."""
        try:
            parts = urllib.parse.urlsplit(urllib.parse.urljoin(self._origin, address))
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise ValueError(f"the address of the image cannot be read: {error}") from error
        origin = (parts.scheme == "https", parts.hostname, port)
        if parts.scheme not in ("http", "https") or origin != (self._secure, self._host, self._port):
            raise ValueError(f"the image is not on {self.url}; images are read from there alone")
        path = parts.path.removeprefix(self._prefix).removeprefix("/")
        steps = urllib.parse.unquote(path).replace("\\", "/").split("/")
        if not _FILES.match(path) or ".." in steps or not address.isprintable():
            raise ValueError("the address of the image is not one at which Label Studio serves files")
        return _quoted(parts.path) + (f"?{_quoted(parts.query)}" if parts.query else "")

    def _authorization(self, renew: bool = False) -> str:
        if self._token.count(".") != 2:
            return f"Token {self._token}"
        if renew or self._access is None or time.monotonic() > self._access[1]:
            until = time.monotonic() + _ACCESS_SECONDS
            status, _, body = self._send(
                "POST", f"{self._prefix}/api/token/refresh", MAX_JSON, {"refresh": self._token}
            )
            _check(status, body, "the token")
            answer = _parsed(body)
            if not isinstance(answer, dict) or not isinstance(answer.get("access"), str):
                raise LabelStudioError("Label Studio's answer about the token is not understood")
            self._access = answer["access"], until
        return f"Bearer {self._access[0]}"

    def _request(
        self, method: str, path: str, limit: int, values: Json | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        answer = self._send(method, path, limit, values, self._authorization())
        if answer[0] == 401 and self._access is not None:
            answer = self._send(method, path, limit, values, self._authorization(renew=True))
        return answer

    def _send(
        self, method: str, path: str, limit: int, values: Json | None = None, authorization: str | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        headers = {"Accept": "*/*", "User-Agent": "coldstream"}
        if authorization is not None:
            headers["Authorization"] = authorization
        body = None if values is None else json.dumps(values)
        if body is not None:
            headers["Content-Type"] = "application/json"
        until = time.monotonic() + DEADLINE
        connection = (
            http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT, context=ssl.create_default_context())
            if self._secure
            else http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT)
        )
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, _read(answer, limit, until)
        except LabelStudioError:
            raise
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise LabelStudioError(f"Label Studio at {self.url} does not answer: {reason}") from None
        finally:
            connection.close()


def _quoted(text: str) -> str:
    """Return text with what an address may not hold, such as spaces, as escapes; escapes stay as they are."""
    return urllib.parse.quote(text, safe="/%:@!$&'()*+,;=~-._?", errors="replace")


def _read(answer: http.client.HTTPResponse, limit: int, until: float) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := answer.read1(1 << 16):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise AnswerTooLarge(f"an answer of Label Studio is over the limit of {limit:,} bytes")
        if time.monotonic() > until:
            raise LabelStudioError(f"an answer of Label Studio took more than {DEADLINE:.0f} seconds")
    if answer.length:
        raise LabelStudioError("an answer of Label Studio ended early")
    return b"".join(chunks)


def _check(status: int, body: bytes, what: str) -> None:
    if status in (401, 403):
        raise LabelStudioError(f"Label Studio refuses the token ({status} for {what}); make a new one", status)
    if not 200 <= status < 300:
        reason = body[:200].decode(errors="replace")
        raise LabelStudioError(f"Label Studio answers {status} for {what}: {reason!r}", status)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise LabelStudioError("Label Studio's answer is not JSON") from error


def _inline(address: str) -> bytes:
    head, _, data = address.partition(",")
    if not head.endswith(";base64") or len(data) > MAX_IMAGE * 4 // 3 + 4:
        raise ValueError(f"an image inside a task must be base64, and at most {MAX_IMAGE:,} bytes")
    try:
        return base64.b64decode(urllib.parse.unquote(data), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("the image inside the task is not valid base64") from error


def read_token(file: Path) -> str:
    """Return the token in a file, which must hold nothing else."""
    if file.stat().st_size > 10_000:
        raise ValueError(f"{file} is too large to hold a token")
    token = file.read_text(encoding="utf-8", errors="replace").strip()
    if not re.fullmatch(r"[A-Za-z0-9._-]{16,}", token):
        raise ValueError(f"{file} holds no token of Label Studio: expected one line of letters and digits")
    return token
