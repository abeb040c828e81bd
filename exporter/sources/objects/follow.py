"""Follows a prefix of an object store: lists it now and then and takes what is new."""

from exporter.sources.names import SourceNames
from exporter.sources.objects.intake import ObjectReader
from exporter.sources.passes import PassFollower
from exporter.sources.tail import LogSettings
from exporter.store.store import Store


class ObjectFollower(PassFollower):
    """Follows the prefix of one `LogSettings`. `poll_once` makes one pass, for tests.

    Raises PrefixscopeError where the library of the object store is not installed.
    """

    def __init__(
        self, store: Store, settings: LogSettings, names: SourceNames | None = None
    ) -> None:
        super().__init__(settings, "objects", settings.objects.poll_seconds)
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

    def poll_once(self) -> None:
        """One pass: takes what is new, and says what cannot be read."""
        if self._skips:
            self._skips = not self._reader.skip()
        if not self._skips:
            self._reader.run()
        self._say(self._reader.problems.messages())
