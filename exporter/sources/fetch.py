"""One request to a server we do not trust: a page, or an answer of a Prometheus.

The requests library waits per read, so a server that sends one byte now and then holds it
for ever. Here one deadline covers connecting, the head and the body; the body has a limit;
redirects are not followed. Whatever goes wrong is a FetchFailed that says what to do.
"""

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from exporter.errors import PrefixscopeError

_CHUNK_BYTES = 65_536
_OK = 200
_ASKS_FOR_A_KEY = (401, 403)


class FetchFailed(PrefixscopeError):
    """No page came. The message is for a person who looks after the target.

    `status` is the HTTP status of an answer that was no success; None where nothing answered.
    `body` is the beginning of such an answer, `retry_after` its header.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        body: bytes = b"",
        retry_after: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.retry_after = retry_after


class BodyTooLarge(FetchFailed):
    """The answer is longer than the limit."""


@dataclass(frozen=True)
class Fetched:
    """The answer to a GET that went well. `date` is the server's own clock, as it states it."""

    body: bytes
    content_type: str | None
    date: str | None = None


@dataclass(frozen=True)
class FetchLimits:
    """Seconds to connect, seconds for everything, and bytes of body."""

    connect_timeout_seconds: float = 3.0
    deadline_seconds: float = 10.0
    max_body_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True)
class Carried:
    """What a request carries beyond its address; a `form` makes it a POST."""

    headers: Mapping[str, str] = field(default_factory=dict)
    form: bytes | None = None
    tls: ssl.SSLContext | None = None


def fetch(url: str, accept: str, limits: FetchLimits, carried: Carried | None = None) -> Fetched:
    """GET `url`; FetchFailed on anything but a complete 200 within the limits."""
    carried = carried or Carried()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FetchFailed(f"{url!r} is no http or https address")
    deadline = time.monotonic() + limits.deadline_seconds
    tls = (carried.tls or ssl.create_default_context()) if parts.scheme == "https" else None
    connection = _Connection(parts.hostname, parts.port, tls, deadline, limits)
    form = {"Content-Type": "application/x-www-form-urlencoded"} if carried.form else {}
    try:
        connection.request(
            "POST" if carried.form else "GET",
            (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
            body=carried.form,
            headers={
                "Accept": accept,
                "Accept-Encoding": "identity",
                "User-Agent": "prefixscope",
                "Connection": "close",
                **form,
                **carried.headers,
            },
        )
        return _answer(connection.getresponse(), limits)
    except ssl.SSLError as error:
        raise FetchFailed(f"TLS failed: {error.reason or error}") from error
    except TimeoutError as error:
        passed = limits.deadline_seconds
        raise FetchFailed(
            f"no complete answer within {passed:g} s: the target hangs or is overloaded"
        ) from error
    except ConnectionRefusedError as error:
        raise FetchFailed("connection refused: is the engine running on this port?") from error
    except socket.gaierror as error:
        raise FetchFailed(f"cannot resolve {parts.hostname}: {error.strerror}") from error
    except OSError as error:
        raise FetchFailed(f"connection failed: {error.strerror or error}") from error
    except http.client.HTTPException as error:
        raise FetchFailed(
            f"the answer is not HTTP as expected: {type(error).__name__} {str(error)[:100]}"
        ) from error
    finally:
        connection.hang_up()


def _answer(response: http.client.HTTPResponse, limits: FetchLimits) -> Fetched:
    status = response.status
    if 300 <= status < 400:
        raise FetchFailed(
            f"the target redirects (HTTP {status}) to {_place(response.headers.get('Location'))}"
            ": redirects are not followed, configure the final address",
            status,
        )
    if status in _ASKS_FOR_A_KEY:
        raise FetchFailed(
            f"the target answered HTTP {status}: it asks for a key, and targets are sent none; let "
            "its metrics be read without one (LiteLLM: require_auth_for_metrics_endpoint: false)",
            status,
        )
    if status != _OK:
        raise FetchFailed(
            f"the target answered HTTP {status} {response.reason[:100]}",
            status,
            response.read(_CHUNK_BYTES),
            response.headers.get("Retry-After"),
        )
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise FetchFailed(f"the body is {encoding[:40]}-encoded although plain text was asked for")
    headers = response.headers
    body = _body(response, limits.max_body_bytes)
    return Fetched(body, headers.get("Content-Type"), headers.get("Date"))


def _place(location: str | None) -> str:
    """Where a redirect leads: without what may be a password or a token, for this is stored."""
    try:
        parts = urlsplit(location or "?")
    except ValueError:
        return "an address that is none"
    host = parts.netloc.rpartition("@")[2]
    return (f"{parts.scheme}://{host}{parts.path}" if host else parts.path or "?")[:200]


def _body(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    body = bytearray()
    while chunk := response.read(_CHUNK_BYTES):
        body += chunk
        if len(body) > max_bytes:
            raise BodyTooLarge(
                f"the body is larger than {max_bytes} bytes: this is no metric page, or raise "
                "the limit max_body_bytes"
            )
    if response.length:
        raise FetchFailed(f"the body was cut short: {response.length} bytes are missing")
    return bytes(body)


class _Connection(http.client.HTTPConnection):
    """A connection on which every single read and write ends at one deadline."""

    def __init__(
        self,
        host: str,
        port: int | None,
        tls: ssl.SSLContext | None,
        deadline: float,
        limits: FetchLimits,
    ) -> None:
        super().__init__(host, port or (443 if tls else 80))
        self._tls = tls
        self._deadline = deadline
        self._plain: socket.socket | None = None
        self._connect_timeout = min(limits.connect_timeout_seconds, limits.deadline_seconds)

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), self._connect_timeout)
        if self._tls is not None:
            plain = self._tls.wrap_socket(plain, server_hostname=self.host)
        self._plain = plain
        self.sock = _DeadlineSocket(plain, self._deadline)

    def hang_up(self) -> None:
        """Close for good. http.client closes its socket while the body is still to be read."""
        self.close()
        if self._plain is not None:
            self._plain.close()


class _DeadlineSocket:
    """As much of a socket as http.client uses, with the time that is left as its timeout."""

    def __init__(self, plain: socket.socket, deadline: float) -> None:
        self._plain = plain
        self._deadline = deadline

    def _wait_no_longer(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("deadline")
        self._plain.settimeout(left)

    def sendall(self, data: bytes) -> None:
        self._wait_no_longer()
        self._plain.sendall(data)

    def recv_into(self, buffer: Any) -> int:  # noqa: ANN401  # whatever has the buffer protocol
        self._wait_no_longer()
        return self._plain.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_SocketReader(self))

    def close(self) -> None:
        """Nothing yet: the body is read from here after http.client said goodbye."""


class _SocketReader(io.RawIOBase):
    """The reading end http.client parses from."""

    def __init__(self, source: _DeadlineSocket) -> None:
        super().__init__()
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  # whatever has the buffer protocol
        return self._source.recv_into(buffer)
