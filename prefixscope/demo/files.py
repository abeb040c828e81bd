"""The demo's five weeks as ordinary files: gateway logs, and metric pages as they were scraped."""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

from exporter.errors import PrefixscopeError
from prefixscope.demo.events import SPAN_SECONDS, ChainNames
from prefixscope.demo.facts import Facts, Tally
from prefixscope.demo.fleet import Call, Replica
from prefixscope.demo.pages import CONTENT_TYPE, metric_page
from prefixscope.demo.rows import iso_time, log_line
from prefixscope.demo.traffic import Traffic

DAYS = 35
REQUESTS = 300_000
SEED = 2026
WEEK_SECONDS = 7 * 86_400

# Scrapes: (from this many seconds before the end on, one every so many seconds).
SCRAPES = ((float("inf"), 3_600), (86_400, 600), (6 * 3_600, 60))


@dataclass(frozen=True)
class DemoFiles:
    """Where everything is. `traffic` stands at `end` and can go on from there."""

    directory: Path
    start: datetime
    end: datetime
    logs: dict[str, list[Path]]
    """Source name -> its log files, oldest first."""
    pages: dict[str, Path]
    """Replica name -> the index of its scraped pages."""
    facts: Facts
    """The same as in facts.json."""
    traffic: Traffic


def write_demo(
    directory: Path,
    *,
    end: datetime,
    seed: int = SEED,
    requests: int = REQUESTS,
    days: int = DAYS,
    hash_key: str | None = None,
) -> DemoFiles:
    """Write `days` of traffic up to `end`, about `requests` of them; same arguments, same bytes.

    `end` is taken down to its whole minute.
    `directory` must not hold an earlier demo. Fewer days with as many requests a day keep the
    load, so that a short demo shows the same peaks. With `hash_key` the rows of the last hours
    carry hash chains made with it; KV-cache events of that time wait in `traffic`.
    """
    _check(directory, end, requests, days)
    end = end.astimezone(UTC).replace(second=0, microsecond=0)
    end_unix = end.timestamp()
    start_unix = end_unix - days * 86_400
    traffic = Traffic(
        start=start_unix,
        end=end_unix,
        requests_per_second=requests / (days * 86_400),
        seed=seed,
    )
    traffic.names = None if hash_key is None else ChainNames(hash_key)
    _write_label(directory, traffic, seed, start_unix, end_unix)
    tally, told = Tally(), False
    with ExitStack() as stack:
        logs = stack.enter_context(_LogWriter(directory / "logs", start_unix))
        scrapes = {r.name: stack.enter_context(_PageWriter(directory, r)) for r in traffic.replicas}
        for moment in _scrape_times(start_unix, end_unix, traffic.story.restart):
            calls = traffic.advance(moment)
            if hash_key is not None and not told and moment >= end_unix - SPAN_SECONDS:
                traffic.tell_events(moment)
                told = True
            logs.write(calls, traffic.names)
            for call in calls:
                tally.add(call)
            for writer in scrapes.values():
                writer.scrape(moment)
    facts = tally.facts()
    _write_json(directory / "facts.json", asdict(facts))
    return DemoFiles(
        directory=directory,
        start=datetime.fromtimestamp(start_unix, UTC),
        end=end,
        logs=logs.paths(),
        pages={name: writer.index for name, writer in scrapes.items()},
        facts=facts,
        traffic=traffic,
    )


def _check(directory: Path, end: datetime, requests: int, days: int) -> None:
    if end.tzinfo is None:
        raise ValueError("end must carry a time zone")
    if days < 1 or requests < 1:
        raise ValueError(f"a demo needs a day and a request at least, got {days} and {requests}")
    if any((directory / name).exists() for name in ("logs", "pages", "demo.json")):
        raise PrefixscopeError(
            f"{directory} already holds demo files; give another folder or remove it first"
        )


def _scrape_times(start: float, end: float, restart: float) -> Iterator[float]:
    """Yield scrape times from `start` to `end`, both included, closer together towards the end.

    One scrape is the last before the restart: the replica is drained by then, so that nothing
    it counted is lost with the process.
    """
    moment = start
    while moment < end:
        yield moment
        every_seconds = next(s for before, s in reversed(SCRAPES) if end - moment <= before)
        # Scrapes stand on a grid that is counted from the end.
        following = end - ((end - moment) // every_seconds * every_seconds)
        following += every_seconds if following <= moment else 0
        if moment < restart - 1 < following:
            yield restart - 1
        moment = following
    yield end


def _write_label(directory: Path, traffic: Traffic, seed: int, start: float, end: float) -> None:
    """Say what this is before anything else is written, so that half a demo is labelled too."""
    directory.mkdir(parents=True, exist_ok=True)
    label = {
        "synthetic": "invented traffic for a demonstration; no real fleet stands behind it",
        "seed": seed,
        "start": iso_time(start),
        "end": iso_time(end),
        "version_change": iso_time(traffic.story.version_change),
        "restart": iso_time(traffic.story.restart),
    }
    _write_json(directory / "demo.json", label)


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


class _LogWriter(ExitStack):
    """One compressed file a week and gateway, rows in the order in which calls ended."""

    def __init__(self, directory: Path, start: float) -> None:
        super().__init__()
        directory.mkdir(parents=True)
        self._directory = directory
        self._start = start
        self._files: dict[str, dict[Path, BinaryIO]] = defaultdict(dict)

    def write(self, calls: list[Call], names: ChainNames | None) -> None:
        lines: dict[tuple[str, int], list[str]] = defaultdict(list)
        for call in calls:
            week = int((call.ended - self._start) // WEEK_SECONDS)
            lines[call.template.source, week].append(log_line(call, names))
        for (source, week), rows in lines.items():
            self._file(source, week).write("".join(rows).encode())

    def paths(self) -> dict[str, list[Path]]:
        return {source: list(files) for source, files in sorted(self._files.items())}

    def _file(self, source: str, week: int) -> BinaryIO:
        day = iso_time(self._start + week * WEEK_SECONDS)[:10]
        path = self._directory / f"{source}-{day}.ndjson.gz"
        if path not in self._files[source]:
            raw = self.enter_context(path.open("wb"))
            # Neither name nor time in the header: the same demo is the same bytes.
            packed = gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0)
            self._files[source][path] = cast("BinaryIO", self.enter_context(packed))
        return self._files[source][path]


class _PageWriter(ExitStack):
    """The scraped pages of one replica and their index; a scrape while it boots finds nothing."""

    def __init__(self, directory: Path, replica: Replica) -> None:
        super().__init__()
        self._directory = directory / "pages" / replica.name
        self._directory.mkdir(parents=True)
        self._replica = replica
        self._number = 0
        self.index = self._directory / "index.jsonl"
        self._lines = self.enter_context(self.index.open("w", encoding="utf-8"))

    def scrape(self, moment: float) -> None:
        entry: dict[str, object] = {"file": None, "scraped_unix": moment}
        if moment < self._replica.up_from:
            entry["error"] = "connection refused"
        else:
            entry["file"] = name = f"{self._number:05d}.prom"
            entry |= {"status": 200, "content_type": CONTENT_TYPE}
            (self._directory / name).write_text(metric_page(self._replica), encoding="utf-8")
        self._number += 1
        self._lines.write(json.dumps(entry) + "\n")
