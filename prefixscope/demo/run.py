"""`prefixscope demo`: synthetic files through the ordinary path into a store, then live traffic."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from exporter.errors import PrefixscopeError
from exporter.geometry import ModelGeometry
from exporter.sources.events.settings import EventSettings
from exporter.sources.target_settings import StaticTarget
from exporter.store.owner import read_owner
from exporter.store.store import Store
from prefixscope.client import Exporter, OpenStore
from prefixscope.consoles import messages
from prefixscope.demo import DemoFiles, LiveDemo, write_demo
from prefixscope.demo.scenario import KV_BYTES_PER_TOKEN, MODEL
from prefixscope.loading import judge_loaded, load
from prefixscope.settings import Settings, server_token

FILES, STORE, LABEL = "files", "store", "demo.json"


@contextmanager
def prepared(
    directory: Path, settings: Settings, *, days: int, requests: int
) -> Iterator[Settings]:
    """Settings of an exporter on a store with the demo in it; while the block lasts, the traffic
    goes on: metric pages to scrape, and rows posted to the address of the settings.
    """
    _make_room(directory)
    store = settings.store.model_copy(update={"directory": directory / STORE})
    settings = settings.model_copy(update={"store": store})
    with _working(f"Writing {days} days of synthetic traffic to {directory / FILES} …"):
        files = write_demo(directory / FILES, end=datetime.now(UTC), days=days, requests=requests,
                           hash_key=_hash_key(settings))  # fmt: skip
    with _working(f"Loading it into {settings.store.directory} …"):
        _load(files, settings)
    with _live(files, settings) as live:
        static = [StaticTarget(url=url, name=name) for name, url in live.targets.items()]
        events = [
            EventSettings(source="demo", endpoint=at.live, replay_endpoint=at.replay, replica=name,
                          model=MODEL)
            for name, at in live.event_endpoints.items()
        ]  # fmt: skip
        listed = settings.scrape.targets.model_copy(update={"static": static})
        scrape = settings.scrape.model_copy(update={"targets": listed})
        geometry = [ModelGeometry(model=MODEL, bytes_per_token=KV_BYTES_PER_TOKEN)]
        yield settings.model_copy(update={"scrape": scrape, "events": events, "geometry": geometry})


@contextmanager
def _working(what: str) -> Iterator[None]:
    """Say what is being done; on a terminal something moves meanwhile."""
    console = messages()
    console.print(what)
    with console.status("") if console.is_terminal else nullcontext():
        yield


def _make_room(directory: Path) -> None:
    """Remove an earlier demo, and nothing that is not one."""
    owner = read_owner(directory / STORE)
    if owner is not None and Exporter(owner.url).is_up():
        raise PrefixscopeError(
            f"the demo in {directory} is running at {owner.url}: stop it first, or give another "
            "--directory"
        )
    if directory.exists() and any(directory.iterdir()):
        if not (directory / FILES / LABEL).is_file():
            raise PrefixscopeError(
                f"{directory} is not empty and holds no demo: give another --directory"
            )
        shutil.rmtree(directory / STORE, ignore_errors=True)
        shutil.rmtree(directory / FILES)


def _hash_key(settings: Settings) -> str:
    """The key of the store's hashes: rows of the demo are named with it, as a tap's would be."""
    store = Store.open(settings.store.directory, settings.store)
    try:
        # Labelled before the first row: nobody ever sees this data without the label.
        store.set_meta("demo", "true")
        return store.key
    finally:
        store.close()


def _load(files: DemoFiles, settings: Settings) -> None:
    """Take the files in as anybody's: same reader, same mapping, same checks."""
    store = Store.open(settings.store.directory, settings.store)
    try:
        inputs = [*files.logs.items(), ("pages", list(files.pages.values()))]
        for source, paths in inputs:
            loaded = load(paths, OpenStore(store), source=source, log_format="auto")
            if loaded.failed or loaded.nothing_taken:
                raise PrefixscopeError(f"the demo's files were refused: {loaded.failed}")
        # The exporter judges for the first time when the pages have long been opened.
        judge_loaded(store, settings.causes, settings.isolation)
    finally:
        store.close()


@contextmanager
def _live(files: DemoFiles, settings: Settings) -> Iterator[LiveDemo]:
    """The traffic going on, its pages and its events."""
    url = f"http://{settings.server.listen}"
    live = LiveDemo(files.traffic, url, token=server_token(settings.server))
    stop = threading.Event()
    thread = threading.Thread(target=live.run, args=(stop,), name="demo")
    thread.start()
    try:
        yield live
    finally:
        stop.set()
        thread.join()
