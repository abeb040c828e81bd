"""Runs an exporter: the store, its parts at work, and the HTTP server in front of them."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import duckdb
import uvicorn
from starlette.applications import Starlette

from exporter.errors import PrefixscopeError
from exporter.geometry import bytes_per_token, keep_geometry
from exporter.prompts.naming import PromptReader
from exporter.server import build_app
from exporter.server_settings import split_address
from exporter.store.database import is_of_disk
from exporter.store.owner import remove_owner, write_owner
from exporter.store.store import Store
from prefixscope.parts import Parts
from prefixscope.settings import Settings, server_token

# How long answers under way may take to finish when the exporter is asked to stop.
GRACE_SECONDS = 10
# A sender whose machine or network is gone says no goodbye: a file it was sending would keep its
# place until restart. After a minute of silence the system asks it every 15 s, four times.
_KEEP_ALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)] + [
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
]
# A shipper whose connection is closed just as it posts may lose its batch: LiteLLM posts every 5 s
# and does not send again. So it is the client that ends an idle connection (Go's after 90 s).
IDLE_CONNECTION_SECONDS = 120


@dataclass(frozen=True)
class Running:
    """An exporter at work and where it answers."""

    url: str
    server_stopped: threading.Event

    def wait(self) -> None:
        """Block until something stops the server; that nobody asked for it is an error.

        Not by joining the thread: in Python 3.11 a join that Ctrl-C interrupts takes the thread
        for ended, and the store would be closed while requests are still being answered.
        """
        self.server_stopped.wait()
        raise PrefixscopeError("the HTTP server has stopped; the log says why")


def _opened(settings: Settings) -> Store:
    """The store, with the tokenizers that prompts in rows are read by."""
    prompts = PromptReader.of(settings.prompts)  # first: a wrong path need not open a store
    store = Store.open(settings.store.directory, settings.store)
    store.prompts = prompts
    return store


def _keep_settings(store: Store, settings: Settings) -> None:
    """What questions ask of the settings: they read nothing but the store."""
    try:
        keep_geometry(store, bytes_per_token(settings.geometry))
        store.set_meta("zone", settings.drops.zone)
    except duckdb.OperationalError as error:
        if not is_of_disk(error):
            raise
        raise PrefixscopeError(f"cannot write the store {store.directory}: {error}") from error


@contextmanager
def running(settings: Settings) -> Iterator[Running]:
    """The exporter at work, for as long as the block lasts.

    Stops in the opposite order of the start: first nobody comes in, last the store is closed.
    """
    token = server_token(settings.server)
    with ExitStack() as stack:
        listener = stack.enter_context(listen(settings.server.listen))
        url = url_of(listener, settings.server.listen)
        store = _opened(settings)
        stack.callback(store.close)
        _keep_settings(store, settings)
        parts = Parts(store, settings)
        for worker in parts.workers:
            worker.start()
            stack.callback(worker.stop)
        services = parts.services(settings.server.external_url or url)
        app = build_app(services, settings.server, token)
        server_stopped = stack.enter_context(_serving(app, listener))
        write_owner(store.directory, url)
        stack.callback(remove_owner, store.directory)
        yield Running(url, server_stopped)


def listen(
    address: str, change: str = "server.listen (PREFIXSCOPE_SERVER__LISTEN; of the demo --listen)"
) -> socket.socket:
    """A listening socket; an address in use is an error that says what to change."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise PrefixscopeError(
            f"cannot listen on {address}: {error.strerror or error}; stop what uses it, or name "
            f"another address: {change}"
        ) from error
    for level, option, value in _KEEP_ALIVE:
        listener.setsockopt(level, option, value)
    return listener


def url_of(listener: socket.socket, address: str) -> str:
    """Where this machine reaches the listener: the port it got, loopback for "every address"."""
    host, _ = split_address(address)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


@contextmanager
def _serving(app: Starlette, listener: socket.socket) -> Iterator[threading.Event]:
    """The HTTP server in a thread of its own; signals stay with the main thread.

    Gives the event that is set once the server has stopped, asked or not.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=IDLE_CONNECTION_SECONDS,
    )
    server = uvicorn.Server(config)
    stopped = threading.Event()

    def serve() -> None:
        try:
            server.run([listener])
        finally:
            stopped.set()

    thread = threading.Thread(target=serve, name="http")
    thread.start()
    try:
        yield stopped
    finally:
        server.should_exit = True
        thread.join()
