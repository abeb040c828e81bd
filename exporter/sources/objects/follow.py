"""Follows a prefix of an object store: lists it now and then and takes what is new."""

import threading

from exporter.sources.log_settings import LogSettings
from exporter.sources.names import SourceNames
from exporter.sources.objects.intake import ObjectReader
from exporter.sources.passes import PassFollower
from exporter.store.store import Store


class ObjectFollower(PassFollower):
    """Follows the prefix of one `LogSettings`.

    Raises PrefixscopeError where the library is not installed.
    """

    def __init__(
        self, store: Store, settings: LogSettings, names: SourceNames | None = None
    ) -> None:
        super().__init__(settings, "objects", settings.objects.poll_seconds)
        self._reader = prefix_reader(store, settings, names, self._stopped)


def prefix_reader(
    store: Store, settings: LogSettings, names: SourceNames | None, stopped: threading.Event | None
) -> ObjectReader:
    """What reads an entry under `logs`; `stopped` ends a pass early."""
    return ObjectReader(
        store,
        settings.path,
        source=settings.source,
        format=settings.format,
        defaults=dict(settings.defaults),
        names=names,
        settings=settings.objects,
        stopped=stopped,
    )
