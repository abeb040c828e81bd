"""Follows log files: every complete line once, through renames, cuts, restarts and kills.

What has been read is known to the store alone, by the first line of each file, and moves with
the rows in one transaction. Here is only what a restart may forget: open handles, and how
files looked when they were last read, so that unchanged files cost nothing.
"""

import logging
import time
from pathlib import Path

import duckdb

from exporter.background import Background
from exporter.errors import PrefixscopeError
from exporter.sources import patterns
from exporter.sources.catch_up import CatchUp
from exporter.sources.followed import FileId, Followed, Look
from exporter.sources.log_settings import LogSettings
from exporter.sources.names import SourceNames
from exporter.store import offsets
from exporter.store.store import Store

logger = logging.getLogger(__name__)

# What rotation appends to a name: log.1, log-20261130, log.2.gz.
_ROTATED = "[._-]*"
# A file left alone this long needs no open handle; more than this many are never kept.
_HANDLE_SECONDS = 300.0
_MOST_HANDLES = 256


class Tailer(Background):
    """Follows the files of one `LogSettings`. `poll_once` looks at each once, for tests.

    A file that leaves the pattern is read until nothing came for `linger_seconds`.
    """

    def __init__(
        self,
        store: Store,
        settings: LogSettings,
        poll_seconds: float = 1.0,
        linger_seconds: float = 60.0,
        names: SourceNames | None = None,
    ) -> None:
        super().__init__(f"tail-{settings.source}")
        self._store = store
        self._settings = settings
        self._poll_seconds = poll_seconds
        self._linger_seconds = linger_seconds
        self._pattern = Path(settings.path).expanduser().absolute()
        self._files: dict[FileId, Followed] = {}
        self._errors: dict[str, str] = {}
        self._skips = settings.begin == "end"
        defaults: dict[str, object] = dict(settings.defaults)
        self._catch_up = CatchUp(
            store, settings.source, settings.format, defaults, self._stopped, names
        )

    # ---------------------------------------------------------------- running

    def stop(self) -> None:
        """Ends after the batch in hand. The rest is read after the next start."""
        super().stop()
        for file in self._files.values():
            file.close()

    @property
    def errors(self) -> dict[str, str]:
        """What cannot be followed at the moment: path -> why."""
        return dict(self._errors)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.poll_once()
                self._say(self._store.path, None)
            except duckdb.Error as error:
                self._say(self._store.path, refused(error))
            self._stopped.wait(self._poll_seconds)

    # ---------------------------------------------------------------- one look at all files

    def poll_once(self) -> None:
        """Takes the new lines of every file. Files that cannot be read end up in `errors`."""
        found, problems = patterns.matching(self._pattern)
        rotated, _ = patterns.matching(self._pattern.with_name(self._pattern.name + _ROTATED))
        looks = self._looks(found, problems)
        first = self._skips and not self._known_source()
        self._skips = False
        older = self._looks([path for path in rotated if path not in looks], {})
        for path, look in sorted((looks | older).items(), key=lambda item: item[1].modified_ns):
            if self._stopped.is_set():
                return
            self._visit(path, look, problems, rotated=path in older, skip=first)
        self._leave({look.identity for look in (looks | older).values()})
        self._close_handles()
        if not looks and not problems:
            problems[str(self._pattern)] = "no file matches yet"
        self._say_all(problems)

    def _looks(self, paths: list[Path], problems: dict[str, str]) -> dict[Path, Look]:
        """How each path looks. One that vanished since it was listed is no problem."""
        looks = {}
        for path in paths:
            try:
                looks[path] = Look.of(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                problems[str(path)] = f"cannot be read: {error.strerror}"
            except PrefixscopeError as error:
                problems[str(path)] = str(error)
        return looks

    def _known_source(self) -> bool:
        cursor = self._store.cursor()
        try:
            return offsets.any_of(cursor, self._settings.source)
        finally:
            cursor.close()

    def _visit(
        self, path: Path, look: Look, problems: dict[str, str], *, rotated: bool, skip: bool
    ) -> None:
        """Reads one file on, if anything was written since it was last seen.

        Of files that only look like rotated ones nothing is said, and only those are read
        that have been followed before.
        """
        now = time.monotonic()
        file = self._files.setdefault(look.identity, Followed(path, look.identity, now))
        file.path = path
        if not rotated and not file.matched:
            # Written under another name first, then moved here as it is.
            file.matched, file.seen = True, None
        if file.seen == look:
            if str(path) in self._errors:
                problems[str(path)] = self._errors[str(path)]
            return
        file.active_at = now
        problem, again = self._read(file, rotated=rotated, skip=skip)
        if problem and not rotated:
            problems[str(path)] = problem
        if not again and not self._stopped.is_set():
            file.seen = look

    def _read(self, file: Followed, *, rotated: bool, skip: bool) -> tuple[str | None, bool]:
        """Why the file could not be taken, if so, and whether to try again as it is."""
        try:
            if not skip:
                self._catch_up.read(file, self._files.values(), known_only=not file.matched)
            elif not rotated:
                self._catch_up.skip(file)
        except FileNotFoundError:
            return None, True
        except OSError as error:
            return f"cannot be read: {error.strerror}", True
        except duckdb.Error as error:
            return refused(error), True
        except PrefixscopeError as error:
            return str(error), False
        return None, False

    # ---------------------------------------------------------------- files that went away

    def _leave(self, listed: set[FileId]) -> None:
        """Reads on in files that no path leads to any more, and lets go of quiet ones."""
        for identity in set(self._files) - listed:
            file = self._files[identity]
            if file.stream is None or self._left(file):
                file.close()
                del self._files[identity]

    def _left(self, file: Followed) -> bool:
        """Whether the file has been quiet for so long that its writer must be gone."""
        now, look = time.monotonic(), file.look()
        quiet = file.seen == look and now - file.active_at >= self._linger_seconds
        try:
            if quiet:
                self._catch_up.read(file, known_only=not file.matched, finished=True)
            elif file.seen != look:
                self._catch_up.read(file, known_only=not file.matched)
                file.seen, file.active_at = look, now
        except PrefixscopeError as error:
            logger.warning("%s, which was rotated away: %s", file.path, error)
            return True
        return quiet

    def _close_handles(self) -> None:
        """Keeps handles of files in use only: they are for reading on after a rename."""
        now = time.monotonic()
        opened = [file for file in self._files.values() if file.stream is not None]
        opened.sort(key=lambda file: file.active_at, reverse=True)
        for place, file in enumerate(opened):
            if place >= _MOST_HANDLES or now - file.active_at > _HANDLE_SECONDS:
                file.close()

    # ---------------------------------------------------------------- what went wrong

    def _say_all(self, problems: dict[str, str]) -> None:
        for place in {*self._errors, *problems} - {str(self._store.path)}:
            self._say(place, problems.get(place))

    def _say(self, place: str | Path, problem: str | None) -> None:
        """Logs a problem once, and that it is over; None = no problem (any more)."""
        place = str(place)
        if self._errors.get(place) == problem:
            return
        if problem is None:
            logger.info("%s is followed again (source %s)", place, self._settings.source)
            del self._errors[place]
        else:
            logger.warning("%s is not followed (source %s): %s",
                           place, self._settings.source, problem)  # fmt: skip
            self._errors[place] = problem


def refused(error: duckdb.Error) -> str:
    """Why the store did not take rows. The transaction is undone, so the next poll tries again.

    A message about data may quote a line, and lines may hold prompts: then only its kind is told.
    """
    kind = type(error).__name__
    detail = f"{kind}: {error}" if isinstance(error, duckdb.OperationalError) else kind
    return f"the store did not take its rows ({detail}); trying again"
