"""Senders that are gone without a word do not keep their place."""

import asyncio
import socket
from collections.abc import AsyncIterator

import anyio
import pytest

from exporter.endpoints import body
from prefixscope.serve import listen


async def in_the_middle() -> AsyncIterator[bytes]:
    yield b"a"
    yield b""
    yield b"b"
    await asyncio.Event().wait()


def test_a_body_whose_rest_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "SILENT_SECONDS", 0.01)

    async def read() -> bytes:
        with anyio.fail_after(60):
            return await body.read_limited(in_the_middle(), 100)

    with pytest.raises(body.SilentSender, match="send it again"):
        anyio.run(read)


def test_the_system_finds_out_about_connections_whose_other_end_is_gone() -> None:
    with listen("127.0.0.1:0") as listener, socket.create_connection(listener.getsockname()):
        taken, _ = listener.accept()
        with taken:
            assert taken.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            if hasattr(socket, "TCP_KEEPIDLE"):
                assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
