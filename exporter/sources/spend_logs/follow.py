"""Follows the spend logs of LiteLLM's database: looks now and then and takes what is new."""

from exporter.sources.names import SourceNames
from exporter.sources.passes import PassFollower
from exporter.sources.spend_logs.intake import SpendLogReader
from exporter.sources.tail import LogSettings
from exporter.store.store import Store


class SpendLogFollower(PassFollower):
    """Follows the database of one `LogSettings`. `poll_once` makes one pass, for tests.

    Raises PrefixscopeError where the library is not installed.
    """

    def __init__(
        self, store: Store, settings: LogSettings, names: SourceNames | None = None
    ) -> None:
        super().__init__(settings, "database", settings.postgres.poll_seconds)
        self._skips = settings.begin == "end"
        self._reader = SpendLogReader(
            store,
            settings.path,
            source=settings.source,
            format=settings.format,
            defaults=dict(settings.defaults),
            names=names,
            settings=settings.postgres,
            stopped=self._stopped,
        )

    def poll_once(self) -> None:
        """One pass: takes what is new, and says what cannot be read."""
        if self._skips:
            self._skips = not self._reader.skip()
        if not self._skips:
            self._reader.run()
        self._say(self._reader.problems)
