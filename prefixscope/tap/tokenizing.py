"""Asks the engine's own tokenizer, through the application the tap is wrapped around.

Needs no address and no second connection: the request never leaves the process (in the proxy it
goes to the same upstream). It is made after the request it is about has ended.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from prefixscope.tap.watching import parsed_object

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKENIZE_PATH = "/tokenize"
# The ids of a prompt of a few million tokens.
_LARGEST_REPLY_BYTES = 32_000_000
_KEPT_HEADERS = (b"authorization", b"x-api-key", b"api-key", b"host")


async def tokens_asked(
    app: App, scope: Mapping[str, Any], request: Mapping[str, Any]
) -> list[int] | None:
    """Token ids of the prompt in `request`; None where the application does not give them.

    `scope` is that of the request it is about. Exceptions of the application are not caught.
    """
    body = json.dumps(request).encode()
    pieces = [{"type": "http.request", "body": body, "more_body": False}]
    reply: list[bytes] = []
    status: list[int] = []

    async def receive() -> Message:
        if not pieces:
            # A client that has asked and waits: whoever listens for its leaving is cancelled.
            await asyncio.get_running_loop().create_future()
        return pieces.pop()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])
        elif message["type"] == "http.response.body":
            reply.append(message.get("body", b""))

    await app(_tokenize_scope(scope, len(body)), receive, send)
    if status != [200] or sum(map(len, reply)) > _LARGEST_REPLY_BYTES:
        return None
    tokens = parsed_object(b"".join(reply)).get("tokens")
    if isinstance(tokens, list) and all(type(token) is int for token in tokens):
        return tokens
    return None


def _tokenize_scope(scope: Mapping[str, Any], body_bytes: int) -> dict[str, Any]:
    front = scope["path"][: scope["path"].rindex("/v1/")]
    headers = [pair for pair in scope["headers"] if pair[0].lower() in _KEPT_HEADERS]
    headers.append((b"content-type", b"application/json"))
    headers.append((b"content-length", str(body_bytes).encode()))
    path = front + TOKENIZE_PATH
    kept = {name: value for name, value in scope.items() if name in _SCOPE_NAMES}
    # The state of its own request belongs to that one.
    state = dict(scope.get("state") or {})
    state.pop("request_metadata", None)
    return {
        **kept, "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": headers, "state": state,
    }  # fmt: skip


_SCOPE_NAMES = (
    "type", "asgi", "http_version", "scheme", "root_path", "client", "server", "app",
)  # fmt: skip
