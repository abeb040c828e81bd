"""Files as rows with chains: read as `ingest` does, into a store that is gone with the answer.

For commands that answer about files which nobody wants to keep.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from exporter.errors import PrefixscopeError
from exporter.prompts.naming import PromptReader
from exporter.sources.intake import IngestSummary
from exporter.store.store import Store
from prefixscope.client import OpenStore
from prefixscope.consoles import messages
from prefixscope.loading import DEFAULT_SOURCE, STDIN, by_name, load, recorded_events
from prefixscope.waterfall.heard import EventFiles, Heard
from replay.counted import counted

# The flag of a row whose ids do not fit its length.
_MISFIT = "hash_count"
# Reading more than this takes so long that it is said.
_LONG_BYTES = 4_000_000


@contextmanager
def rows_of_files(
    files: list[Path], log_format: str, prompts: PromptReader | None = None
) -> Iterator[tuple[OpenStore, Heard]]:
    """The rows of logs and traces, and what recorded KV-cache events beside them tell.

    `prompts`: how prompts become names, None: without a tokenizer. What became of the files is
    said on standard error.
    """
    recordings = [file for file in files if recorded_events(file, log_format)]
    logs: list[Path | str] = [file for file in files if file not in recordings]
    if not logs:
        raise PrefixscopeError(
            "events alone do not tell what requests missed: name the log of the requests too"
        )
    console = messages()
    with TemporaryDirectory(prefix="prefixscope-") as folder:
        target = OpenStore(Store.open(Path(folder)))
        target.store.prompts = prompts or target.store.prompts
        if long := [str(file) for file in files if _is_long(file)]:
            console.print(f"Reading {', '.join(long)}", style="dim", markup=False)
        try:
            loaded = load(logs, target, source=DEFAULT_SOURCE, log_format=log_format)
            if loaded.failed:
                raise PrefixscopeError(loaded.failed[0])
            for name, log in loaded.logs.items():
                console.print(f"{name}: {_became(log)}", style="dim", markup=False)
                _refuse_misfits(name, log)
            for reject in target.ask("rejects", {}).to_pylist():
                console.print(_example(reject), style="dim", markup=False)
            yield target, _heard(recordings, target.store, console.print)
        finally:
            target.store.close()


def _is_long(file: Path) -> bool:
    """How much comes from a pipe nobody knows."""
    if not file.is_file():
        return file == STDIN or file.exists()
    return file.stat().st_size >= _LONG_BYTES


def _refuse_misfits(name: str, log: IngestSummary) -> None:
    """A trace most of whose rows do not fit their length is of other blocks than it was read by."""
    misfits = log.flags.get(_MISFIT, 0)
    if misfits * 2 > log.accepted:
        raise PrefixscopeError(
            f"{name}: {misfits:,} of {counted(log.accepted, 'row')} have another number of hash "
            "ids than their length has blocks, by whatever block size: a row needs "
            "ceil(length / block) ids"
        )


def _became(log: IngestSummary) -> str:
    """What became of a file, in one line; counts of 0 are left out."""
    facts = [log.format, f"{counted(log.accepted, 'row')}"]
    if log.duplicate:
        facts.append(f"{log.duplicate:,} duplicate")
    if log.rejected:
        facts.append(f"{log.rejected:,} rejected{by_name(log.reasons)}")
    if log.flags:
        facts.append(f"flagged{by_name(log.flags)}")
    return ", ".join(facts)


def _example(reject: Mapping[str, object]) -> str:
    """Where to look for what was set aside; what it said is not repeated."""
    place = "" if reject["position"] is None else f" at byte {reject['position']:,}"
    detail = f": {reject['detail']}" if reject["detail"] else ""
    return f"  {reject['reason']}, the latest{place}{detail}; correct the line or leave it out"


def _heard(recordings: list[Path], store: Store, say: Callable[[str], None]) -> Heard:
    """What the recordings tell, named with the key of the store."""
    if not recordings:
        return Heard()
    events = EventFiles(store.key, store.hash_key_id, say)
    for file in recordings:
        events.read(file)
    return events.told()
