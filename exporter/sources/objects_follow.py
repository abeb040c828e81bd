"""Follows a prefix of an object store: lists it now and then and takes what is new."""

import logging
import threading

import duckdb

from exporter.errors import PrefixscopeError
from exporter.sources.names import SourceNames
from exporter.sources.objects_intake import ObjectReader
from exporter.sources.tail import LogSettings, refused
from exporter.store.store import Store

logger = logging.getLogger(__name__)


class ObjectFollower:
    """Follows the prefix of one `LogSettings`. `poll_once` makes one pass, for tests.

    Raises PrefixscopeError where the library of the object store is not installed.
    """

    def __init__(
        self, store: Store, settings: LogSettings, names: SourceNames | None = None
    ) -> None:
        self._store, self._settings = store, settings
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._errors: list[str] = []
        self._skips = settings.begin == "end"
        self._reader = ObjectReader(
            store,
            settings.path,
            source=settings.source,
            format=settings.format,
            defaults=dict(settings.defaults),
            names=names,
            settings=settings.objects,
            stopped=self._stopped,
        )

    def start(self) -> None:
        """Begins to follow in the background."""
        name = f"objects-{self._settings.source}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends after the chunk in hand. The rest is read after the next start."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the following thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def errors(self) -> list[str]:
        """What could not be read in the last pass."""
        return list(self._errors)

    def poll_once(self) -> None:
        """One pass: takes what is new, and says what cannot be read."""
        if self._skips:
            self._skips = not self._reader.skip()
        if not self._skips:
            self._reader.run()
        self._say(self._reader.problems.messages())

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.poll_once()
            except duckdb.Error as error:
                self._say([refused(error)])
            except PrefixscopeError as error:
                self._say([str(error)])
            self._stopped.wait(self._settings.objects.poll_seconds)

    def _say(self, errors: list[str]) -> None:
        """Logs each problem once, and that all are over."""
        for error in errors:
            if error not in self._errors:
                logger.warning("source %s: %s", self._settings.source, error)
        if self._errors and not errors:
            logger.info("%s is followed again (source %s)",
                        self._settings.path, self._settings.source)  # fmt: skip
        self._errors = errors
