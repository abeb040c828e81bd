"""Follows the spend logs of LiteLLM's database: looks now and then and takes what is new."""

import threading

from exporter.sources.log_settings import LogSettings
from exporter.sources.names import SourceNames
from exporter.sources.passes import PassFollower
from exporter.sources.spend_logs.intake import SpendLogReader
from exporter.store.store import Store


class SpendLogFollower(PassFollower):
    """Follows the database of one `LogSettings`.

    Raises PrefixscopeError where the library is not installed.
    """

    def __init__(
        self, store: Store, settings: LogSettings, names: SourceNames | None = None
    ) -> None:
        super().__init__(settings, "database", settings.postgres.poll_seconds)
        self._reader = database_reader(store, settings, names, self._stopped)


def database_reader(
    store: Store, settings: LogSettings, names: SourceNames | None, stopped: threading.Event | None
) -> SpendLogReader:
    """What reads an entry under `logs`; `stopped` ends a pass early."""
    return SpendLogReader(
        store,
        settings.path,
        source=settings.source,
        format=settings.format,
        defaults=dict(settings.defaults),
        names=names,
        settings=settings.postgres,
        stopped=stopped,
    )
