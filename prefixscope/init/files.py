"""A file or folder given to `init`: which log it is, read as the exporter would read it."""

import glob
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from exporter.errors import PrefixscopeError
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.name_checks import forbidden
from exporter.sources.name_sample import Sample, sample_names
from exporter.sources.packed import open_input
from exporter.sources.page_files import PAGE_SUFFIX, holds_pages
from prefixscope.init.found import Found, FoundLog, Remark
from replay.counted import counted

# Rows of a file that are read to be sure of its format, and files of a folder that are looked at.
_ROWS = 500
_FILES = 200
# Fields of a row that are usually named so, in the words of gateways and applications.
_LIKELY = {
    "tenant": (
        "tenant", "tenant_id", "team", "team_id", "team_alias", "organization", "organization_id",
        "org", "org_id", "customer", "customer_id", "account_id", "end_user", "user_id",
        "x-tenant", "x-tenant-id", "x-team",
    ),
    "route": ("route", "route_name", "endpoint", "model_group", "app", "application", "x-route"),
    "template": (
        "template", "template_id", "prompt_template", "prompt_id", "prompt_name", "x-template",
    ),
    "session": ("session", "session_id", "conversation_id", "thread_id", "x-session-id"),
}  # fmt: skip
# What a format must not miss, and how others call it.
_NEEDED = {
    "cached_tokens": (
        "cached_tokens", "cache_read_input_tokens", "cache_read_tokens", "prompt_cache_hit_tokens",
        "cached_prompt_tokens", "cached_input_tokens",
    ),
    "ts": ("starttime", "start_time", "timestamp", "@timestamp", "created_at", "created"),
}  # fmt: skip
# Suggested only where the format itself names fewer rows than this share, and this many paths.
_NAMED_SHARE = 0.5
_SUGGESTED_PATHS = 2


def look_at_path(path: Path) -> Iterator[Found]:
    """What lies there. Never raises for what it holds."""
    try:
        if path.is_dir():
            yield from _folder(path)
        else:
            yield _file(path)
    except OSError as error:
        yield Remark(str(path), f"cannot be read: {error.strerror or error}")


def _file(path: Path) -> Found:
    if path.suffix == PAGE_SUFFIX or (path.suffix == ".jsonl" and holds_pages(path)):
        return _recorded(path)
    if path.exists() and not path.is_file():
        return Remark(str(path), "no plain file: a pipe or device cannot be followed")
    if not path.stat().st_size:
        return FoundLog(source_name(path), pattern_of(path), "auto", "the file is still empty")
    try:
        sample = _sampled(path)
    except PrefixscopeError as error:
        return Remark(str(path), str(error).removeprefix(f"{path}: "))
    return _log(path, sample)


def _sampled(path: Path) -> Sample:
    with path.open("rb") as file:
        return sample_names(open_input(file), None, name=str(path), rows=_ROWS)


def _log(path: Path, sample: Sample) -> Found:
    known = sample.log_format
    if not sample.stored():
        reasons = Counter(row.rejected for row in sample.rows)
        told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
        return Remark(str(path), f"no request log: of its first rows none can be read ({told})")
    if (why := _once(known)) is not None:
        return Remark(
            str(path), f"{known.name} ({sample.decided_because}): {why}",
            f"load it once: prefixscope ingest {path} --source {source_name(path)}",
        )  # fmt: skip
    return FoundLog(
        source_name(path), pattern_of(path), known.name, sample.decided_because,
        len(sample.rows), len(sample.stored()), _suggested(sample), _unread(sample),
    )  # fmt: skip


def _once(known: LogFormat) -> str | None:
    """Why a format is loaded and not followed."""
    if known.documents is not None:
        return "it is one whole document and cannot be followed while it grows"
    if known.relative_time is not None:
        return "its times are relative, as a trace's are"
    return None


def _recorded(path: Path) -> Remark:
    return Remark(
        str(path), "recorded metric pages", f"load them into a store: prefixscope ingest {path}"
    )


def source_name(path: Path) -> str:
    """The file's name without its endings and dates: `gateway` of gateway-2026-11-30.log.gz."""
    stem = path.name.lstrip(".").partition(".")[0]
    name = re.sub(r"[-_.]?\d{4}-?\d{2}-?\d{2}.*$", "", stem)
    return re.sub(r"[^\w-]+", "-", name).strip("-") or "log"


def pattern_of(path: Path) -> str:
    """The path as it is, for a setting that takes patterns."""
    return glob.escape(str(path.absolute()))


def _folder(folder: Path) -> Iterator[Found]:
    """Its files, one entry for those that are named and written alike."""
    files = [f for f in sorted(folder.iterdir()) if f.is_file() and not f.name.startswith(".")]
    if any(file.suffix == PAGE_SUFFIX for file in files):
        yield _recorded(folder)
        return
    found = [(file, _file(file)) for file in files[:_FILES]]
    if not found:
        yield Remark(str(folder), "a folder without files", "name the files, or the folder later")
        return
    if len(files) > _FILES:
        yield Remark(
            str(folder), f"only its first {_FILES} of {counted(len(files), 'file')} were looked at"
        )
    by_ending: dict[str, list[tuple[Path, Found]]] = defaultdict(list)
    for file, what in found:
        by_ending[file.suffix].append((file, what))
    for ending, alike in by_ending.items():
        yield from _together(folder, ending, alike)


def _together(folder: Path, ending: str, alike: list[tuple[Path, Found]]) -> Iterator[Found]:
    logs = [what for _, what in alike if isinstance(what, FoundLog)]
    formats = {log.format for log in logs} - {"auto"}
    if len(logs) < len(alike) or len(logs) < 2 or len(formats) != 1 or not ending:
        yield from (what for _, what in alike)
        return
    best = max(logs, key=lambda log: log.sampled)
    yield FoundLog(
        source_name(folder), f"{pattern_of(folder)}/*{ending}", formats.pop(),
        f"{counted(len(logs), 'file')}; {best.because}", sum(log.sampled for log in logs),
        sum(log.read for log in logs), best.suggested, best.unread,
    )  # fmt: skip


def _suggested(sample: Sample) -> Mapping[str, tuple[tuple[str, int], ...]]:
    """Paths that look like names of a field the format itself hardly names."""
    stored = len(sample.stored())
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for field, words in _LIKELY.items():
        named = sum(field in row.names for row in sample.stored())
        if named >= _NAMED_SHARE * stored:
            continue
        likely = [
            (words.index(last), path, rows)
            for path, rows in sample.paths.items()
            if (last := _last_key(path)) in words and forbidden(last) is None
        ]
        best = [(path, rows) for _, path, rows in sorted(likely)][:_SUGGESTED_PATHS]
        if best:
            found[field] = tuple(best)
    return found


def _unread(sample: Sample) -> Mapping[str, str]:
    """Of the fields that make a hit ratio those that rows have at a place the format does not
    know, as where a gateway's rows were changed on the way and are taken for another format's."""
    found: dict[str, str] = {}
    for name, words in _NEEDED.items():
        places = {term for field in sample.log_format.fields if field.name == name
                  for term in field.terms()}  # fmt: skip
        elsewhere = [path for path in sample.paths if _last_key(path) in words]
        if places and elsewhere and places.isdisjoint(sample.paths):
            found[name] = min(elsewhere, key=lambda path: (-sample.paths[path], path))
    return found


def _last_key(path: str) -> str:
    """The last key of a path, in lower case: `team` of metadata.team, of tags[*] tags."""
    return re.sub(r"\[\*\]$", "", path).rpartition(".")[2].strip('"').lower()
