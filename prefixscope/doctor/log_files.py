"""Facts of log files nobody has read yet: the end of each, read as the exporter would read it.

The rows go through the one path in, into a store of the moment in a folder of its own, and the
same questions are asked of it. Like any store it holds no prompt; it is gone afterwards.
"""

import io
import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from exporter.errors import PrefixscopeError
from exporter.sources import patterns
from exporter.sources.followed import Look
from exporter.sources.intake import Intake, choose_format
from exporter.sources.log_settings import LogSettings
from exporter.sources.names import Names
from exporter.sources.objects.follow import prefix_reader
from exporter.sources.objects.place import is_object_path
from exporter.sources.packed import DAMAGED, open_input
from exporter.sources.spend_logs.follow import database_reader
from exporter.sources.spend_logs.place import is_database_path
from exporter.store.store import Store
from prefixscope.client import OpenStore
from prefixscope.doctor.asked import Asked, asked_logs
from prefixscope.doctor.facts import LogFacts

# Of a longer file the end is read: what is written now tells whether a flag is on.
SAMPLE_BYTES = 8 << 20
_HEAD_BYTES = 1 << 18
# Of a database as many of the newest rows.
_SAMPLE_ROWS = 1000
# What reading damaged packed data raises.


@dataclass(frozen=True)
class Found:
    """The files of one `logs` entry, or why there are none."""

    settings: LogSettings
    paths: tuple[Path, ...] = ()
    error: str | None = None


def find(settings: LogSettings) -> Found:
    """Look where the exporter would, without reading anything. An object store or a database is
    first asked when it is read."""
    if is_object_path(settings.path) or is_database_path(settings.path):
        return Found(settings)
    pattern = Path(settings.path).expanduser().absolute()
    paths, problems = patterns.matching(pattern)
    present = [path for path in paths if path.exists()]
    if not present:
        why = "; ".join(f"{folder}: {problem}" for folder, problem in problems.items())
        return Found(settings, error=why or f"{settings.path}: there is no such file yet")
    try:
        for path in present:
            Look.of(path)
            if not os.access(path, os.R_OK):
                return Found(settings, error=f"{path}: may not be read by this user")
    except (PrefixscopeError, OSError) as error:
        return Found(settings, error=f"{settings.path}: {error}")
    return Found(settings, tuple(present))


def missing(found: Found) -> LogFacts:
    """What is said of a log without files."""
    return LogFacts(
        found.settings.source, path=found.settings.path, error=found.error,
        fix="correct path under logs (it may be a pattern), or the rights of the folder",
    )  # fmt: skip


def sampled(logs: Sequence[Found], names: Names, now: datetime) -> list[LogFacts]:
    """Facts of each log from the newest of its files; of one that cannot be read, why."""
    with tempfile.TemporaryDirectory(prefix="prefixscope-doctor-") as folder:
        store = Store.open(Path(folder))
        try:
            errors = {found.settings.source: _take(store, found, names) for found in logs}
            known = {f.source: f for f in asked_logs(Asked(OpenStore(store), None), now)}
        finally:
            store.close()
    return [_facts(found, errors[found.settings.source], known) for found in logs]


def _facts(found: Found, error: str | None, known: dict[str, LogFacts]) -> LogFacts:
    source, path = found.settings.source, found.settings.path
    if error is not None:
        fix = "say its format under logs (see: prefixscope formats)"
        if is_object_path(path):
            fix = "correct path, rights, credentials or format; see docs/object-stores.md"
        if is_database_path(path):
            fix = "see docs/spend-logs.md"
        return LogFacts(source, path=path, error=error, fix=fix)
    if source not in known:
        return LogFacts(source, path=path, sampled=True)
    return replace(known[source], path=path, sampled=True)


def _take(store: Store, found: Found, names: Names) -> str | None:
    """Read the newest file of a log into the store; why it could not be read, if so."""
    if is_object_path(found.settings.path):
        return _take_objects(store, found.settings, names)
    if is_database_path(found.settings.path):
        return _take_database(store, found.settings, names)
    newest = max(found.paths, key=lambda path: path.stat().st_mtime_ns)
    settings = found.settings
    try:
        with newest.open("rb") as file:
            head, sample = _sample(file)
        if not head.strip():
            return None
        chosen, _ = choose_format(settings.format, head, str(newest))
        if chosen.documents:
            return f"{newest}: the format {chosen.name} is a whole document and cannot be followed"
        Intake(store, names=names).ingest(
            io.BytesIO(sample), source=settings.source, format=chosen.name, name=str(newest),
            defaults=dict(settings.defaults),
        )  # fmt: skip
    except OSError as error:
        return f"{newest}: cannot be read: {error.strerror or error}"
    except DAMAGED as error:
        return f"{newest}: the compressed data is damaged or ends early ({error})"
    except PrefixscopeError as error:
        return str(error)
    return None


def _take_objects(store: Store, settings: LogSettings, names: Names) -> str | None:
    """The same for the first objects of a prefix."""
    enough = threading.Event()
    try:
        reader = prefix_reader(store, settings, names.get(settings.source), enough)
        summary = reader.run(progress=lambda _: enough.set())
    except PrefixscopeError as error:
        return str(error)
    problems = reader.problems
    return "; ".join(problems) if problems and not summary.accepted else None


def _take_database(store: Store, settings: LogSettings, names: Names) -> str | None:
    """The same for the newest rows of a database."""
    try:
        reader = database_reader(store, settings, names.get(settings.source), None)
        reader.sample(_SAMPLE_ROWS)
    except PrefixscopeError as error:
        return str(error)
    return None


def _sample(file: BinaryIO) -> tuple[bytes, bytes]:
    """The first bytes, which tell the format, and the last whole lines; of a packed file the
    first. A line still being written is left out."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    stream = open_input(file)
    head = stream.read(_HEAD_BYTES)
    if stream is file and size > SAMPLE_BYTES:
        file.seek(size - SAMPLE_BYTES)
        file.readline()
        sample = file.read()
    else:
        sample = head + stream.read(SAMPLE_BYTES - len(head))
    return head, sample[: sample.rfind(b"\n") + 1]
