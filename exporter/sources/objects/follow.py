"""Follows a prefix of an object store: lists it now and then and takes what is new."""

import threading
from functools import partial

from exporter.sources.log_settings import LogSettings
from exporter.sources.names import SourceNames
from exporter.sources.objects.intake import ObjectReader
from exporter.sources.passes import PassFollower
from exporter.store.store import Store


def follow_prefix(
    store: Store, settings: LogSettings, names: SourceNames | None = None
) -> PassFollower:
    """Follows the prefix of one entry under `logs`.

    Raises PrefixscopeError where the library is not installed.
    """
    read_by = partial(prefix_reader, store, settings, names)
    return PassFollower(settings, "objects", settings.objects.poll_seconds, read_by)


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
