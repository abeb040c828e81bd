"""Rows with chains, asked for in a window: with the history before it, and within free memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa

from exporter.errors import PrefixscopeError
from prefixscope.client import Answers, Exporter
from prefixscope.waterfall.attribution import HORIZON
from queries import registry
from replay.counted import counted

# What was there before a window is told by the rows before it: as many as there is memory for.
_HISTORIES = (HORIZON, timedelta(days=1), timedelta(hours=1), timedelta())
_EARLIEST = datetime(1, 1, 1)  # noqa: DTZ001 - times of the store are UTC without a zone
# Measured: 55 to 70 at the peak, the table of rows included.
WORKING_BYTES_PER_HASH = 80
# An answer stands in the exporter's own memory, 8 bytes a hash, and once more while it is sent.
EXPORTER_HASHES = 10_000_000
_NARROWER = "narrow the window with --since and --until"
CHAINS_COME = (
    "chains of block hashes come with the tap, with token ids, messages or prompts in the log, and "
    "with public traces (docs/chains.md)"
)


@dataclass(frozen=True)
class Window:
    """From `since` (inclusive) until `until` (exclusive), UTC without a zone; None: open."""

    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, since: str | None, until: str | None) -> "Window":
        """As people write it; registry.BadParameter says what is wrong."""
        asked = registry.question("request_chains")
        times = registry.checked(asked, {"since": since, "until": until})
        found = [time if isinstance(time, datetime) else None for time in times.values()]
        return cls(*found)

    def after(self, history: timedelta) -> "Window":
        """The same with so much before it, as far as there are times."""
        if self.since is None:
            return self
        return Window(self.since - min(history, self.since - _EARLIEST), self.until)

    def params(self) -> dict[str, object]:
        """As questions take them."""
        given = {"since": self.since, "until": self.until}
        return {name: moment for name, moment in given.items() if moment is not None}


@dataclass(frozen=True)
class Chains:
    """An answer of `request_chains`. `history`: how much before the window it begins."""

    table: pa.Table
    history: timedelta = HORIZON


@dataclass(frozen=True)
class Room:
    """For how many hashes there is room (None: not known, so nothing is refused), and why."""

    hashes: int | None
    words: str = ""

    @classmethod
    def of(cls, answers: Answers, free: int | None) -> "Room":
        """With so many free bytes, and of an exporter what it can answer beside its own work."""
        enough = None if free is None else free // WORKING_BYTES_PER_HASH
        if isinstance(answers, Exporter) and (enough is None or enough > EXPORTER_HASHES):
            return cls(EXPORTER_HASHES, f"an exporter is asked for at most {EXPORTER_HASHES:,}")
        if free is None:
            return cls(None)
        return cls(enough, f"{free / 1e9:.1f} GB of free memory are enough for {enough:,}")


def ask_chains(
    answers: Answers, window: Window, room: Room, *, history: bool = True, model: str | None = None
) -> Chains:
    """The rows of a window that has any, behind as much of the horizon as there is room for, or
    without any `history`; of all models or of one.

    PrefixscopeError where no row could be explained, or the window alone has no room.
    """
    own: dict[str, object] = {} if model is None else {"model": model}
    _refuse_unexplained(_counts(answers, window.params() | own))
    spans = _HISTORIES if history else _HISTORIES[-1:]
    if room.hashes is None:
        asked = window.after(spans[0]).params() | own
        return Chains(_answer(answers, "request_chains", asked))
    hashes = 0
    for span in spans if window.since is not None else spans[:1]:
        asked = window.after(span).params() | own
        hashes = _counts(answers, asked)["hashes"]
        if hashes <= room.hashes:
            return Chains(_answer(answers, "request_chains", asked), span)
    raise PrefixscopeError(
        f"the chains of these requests have {counted(hashes, 'hash', 'hashes')}, and "
        f"{room.words}: {_NARROWER}"
    )


def free_bytes(root: Path = Path("/")) -> int | None:
    """Memory this process may still take, by the machine and its container; None: not known."""
    told = _numbers(root / "proc/meminfo").get("MemAvailable:")
    group = root / "sys/fs/cgroup"
    most, used = _number(group / "memory.max"), _number(group / "memory.current")
    machine = None if told is None else told * 1024
    container = None if most is None or used is None else max(0, most - used)
    known = [room for room in (machine, container) if room is not None]
    return min(known) if known else None


def _counts(answers: Answers, params: Mapping[str, object]) -> dict[str, int]:
    (counts,) = _answer(answers, "request_chain_counts", params).to_pylist()
    found: dict[str, int] = counts
    return found


def _refuse_unexplained(counts: dict[str, int]) -> None:
    """Say why there is nothing to explain, each reason with its own remedy."""
    if not counts["stored_requests"]:
        raise PrefixscopeError(
            "there are no requests: load a log with prefixscope ingest FILE, or name one here"
        )
    if not counts["requests"]:
        raise PrefixscopeError(
            f"none of {counted(counts['stored_requests'], 'request')} lies between --since and "
            "--until: widen the window"
        )
    if not counts["prompt_requests"]:
        raise PrefixscopeError(
            f"none of {counted(counts['requests'], 'request')} tells its prompt tokens, so none "
            "can be explained: where the log holds the text of prompts, give the model's tokenizer "
            "with --tokenizer; where another format was taken, name it with --format (known: "
            "prefixscope formats); else use a log that has them"
        )
    if not counts["chain_requests"]:
        raise PrefixscopeError(f"no row has a chain of block hashes; {CHAINS_COME}")


def _answer(answers: Answers, name: str, params: Mapping[str, object]) -> pa.Table:
    try:
        return answers.ask(name, params)
    except duckdb.OutOfMemoryException as error:
        raise PrefixscopeError(
            "the chains of these requests do not fit into the store's memory limit: "
            f"{_NARROWER}, or raise store.memory_limit"
        ) from error


def _numbers(file: Path) -> dict[str, int]:
    """Of lines `name number …`; none where the file is not there, as on other systems."""
    if not file.exists():
        return {}
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


def _number(file: Path) -> int | None:
    """None where there is no such file, or it says `max`."""
    text = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    return int(text) if text.isdigit() else None
