"""Follows the spend logs of LiteLLM's database: looks now and then and takes what is new."""

import threading
from functools import partial

from exporter.sources.log_settings import LogSettings
from exporter.sources.names import SourceNames
from exporter.sources.passes import PassFollower
from exporter.sources.spend_logs.intake import SpendLogReader
from exporter.store.store import Store


def follow_database(
    store: Store, settings: LogSettings, names: SourceNames | None = None
) -> PassFollower:
    """Follows the database of one entry under `logs`.

    Raises PrefixscopeError where the library is not installed.
    """
    read_by = partial(database_reader, store, settings, names)
    return PassFollower(settings, "database", settings.postgres.poll_seconds, read_by)


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
