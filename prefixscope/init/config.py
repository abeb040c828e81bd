"""Found things -> a commented config. Every value is quoted where YAML could read it otherwise."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import TypeVar
from urllib.parse import urlsplit

import yaml

from exporter.errors import PrefixscopeError
from exporter.sources.formats.names import HEADER_PLACES
from prefixscope.event_flags import EventSetup, event_setup
from prefixscope.init.found import Found, FoundLog, FoundPrometheus, FoundTarget, Remark
from replay.counted import counted

_PLAIN = re.compile(r"[A-Za-z0-9/][\w./:@-]*")
_WIDTH = 96
_Named = TypeVar("_Named", FoundTarget, FoundLog)

_HEAD = """\
# Written by `prefixscope init`, {date}. What stands uncommented answered or was read then.
# Start:  prefixscope serve --config {file} --dashboard
# Check:  prefixscope doctor --config {file}
# Every setting with its default is in deploy/prefixscope.yml of the project. An environment
# variable wins over this file: server.listen is PREFIXSCOPE_SERVER__LISTEN.
"""
_TAIL = """
# Where the exporter listens. Anything but loopback needs a token.
# server:
#   listen: 127.0.0.1:9465
#   token_file: /run/secrets/prefixscope

# Where everything is kept; the path counts from the folder the exporter is started in.
# store:
#   directory: data/store
"""


def config(found: Sequence[Found], file: str, now: datetime) -> str:
    """The text of the file. PrefixscopeError where nothing was found that can be configured."""
    targets = _once_each([f for f in found if isinstance(f, FoundTarget)], lambda t: t.url)
    servers = [f for f in found if isinstance(f, FoundPrometheus)]
    logs = _once_each([f for f in found if isinstance(f, FoundLog)], lambda log: log.path)
    if not (targets or servers or logs):
        raise PrefixscopeError("nothing was found that a config could name, so none was written")
    own_names = _apart([target.name for target in targets])
    targets = [replace(t, name=name) for t, name in zip(targets, own_names, strict=True)]
    sources = _apart([log.source for log in logs])
    logs = [replace(log, source=source) for log, source in zip(logs, sources, strict=True)]
    lines = [
        _HEAD.format(date=f"{now:%Y-%m-%d}", file=file),
        *_scrape(targets, servers),
        *_events(targets),
        *_logs(logs),
        *_names(logs, file),
        _TAIL,
        *_remarks([f for f in found if isinstance(f, Remark)]),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _once_each(found: list[_Named], place: Callable[[_Named], str]) -> list[_Named]:
    """Each place once, however often it was given."""
    return list({place(one): one for one in found}.values())


def _apart(names: Sequence[str]) -> list[str]:
    """Names of their own for all: a second `gateway` is `gateway-2`."""
    taken: set[str] = set()
    named = []
    for name in names:
        numbered = (name if n == 1 else f"{name}-{n}" for n in count(1))
        named.append(next(one for one in numbered if one not in taken))
        taken.add(named[-1])
    return named


def _scrape(targets: list[FoundTarget], servers: list[FoundPrometheus]) -> Iterator[str]:
    """Metric pages. Of a Prometheus whose pages cannot be read here its own samples are read."""
    near = [server for server in servers if server.answered]
    far = [server for server in servers if not server.answered]
    yield "# Metric pages: of engines, and of the routers, stores and gateways beside them."
    if not targets and not servers:
        yield "# scrape:"
        yield "#   targets:"
        yield "#     static: [HOST:8000]"
    else:
        yield "scrape:"
    if targets or near:
        yield "  targets:"
    if targets:
        yield "    static:"
        for target in targets:
            yield from _target(target)
    if near:
        yield "    # The targets a Prometheus scrapes; prefixscope reads their pages itself."
        yield "    prometheus:"
        yield from (line for server in near for line in _prometheus(server, "      "))
    if far:
        yield "  # None of the pages it lists answered here, so what it scraped is read from it."
        yield "  prometheus_source:"
        yield from (line for server in far for line in _prometheus(server, "    "))
    yield ""


def _target(target: FoundTarget) -> Iterator[str]:
    model = f", model {', '.join(target.models)}" if target.models else ""
    yield from _comment(f"{target.title}{model}", "      ")
    for remark in target.remarks:
        yield from _comment(f"missing on its page: {remark}", "      ")
    yield f"      - url: {scalar(target.url)}"
    yield f"        name: {scalar(target.name)}"


def _prometheus(server: FoundPrometheus, margin: str) -> Iterator[str]:
    counts = ", ".join(f"{count} of job {job or '(none)'}" for job, count in server.jobs.items())
    yield from _comment(f"{server.title}: pages {counts}", margin)
    yield from _comment(
        f"Its past too: prefixscope backfill --prometheus {server.url} --since 30d", margin
    )
    yield f"{margin}- url: {scalar(server.url)}"
    jobs = [scalar(job) for job in server.jobs if job]
    if len(jobs) == len(server.jobs):
        yield f"{margin}  jobs: [{', '.join(jobs)}]"


def _events(targets: list[FoundTarget]) -> Iterator[str]:
    """KV-cache events as comments: the engine must be started so, and they carry prompts."""
    hosts: Counter[str | None] = Counter()
    entries: list[str] = []
    for target in targets:
        host = urlsplit(target.url).hostname
        setup = event_setup(target.engine, target.url, (target.name,), nth=hosts[host])
        if setup is not None:
            hosts[host] += 1
            entries += _event_entry(target, setup)
    if entries:
        yield "# KV-cache events: what the caches hold, evict and lose. They carry the token ids of"
        yield "# prompts, unencrypted: read docs/kv-events.md first. Each engine needs its flag."
        yield "# events:"
        yield from entries
        yield ""


def _event_entry(target: FoundTarget, setup: EventSetup) -> Iterator[str]:
    model = {"model": target.models[0]} if len(target.models) == 1 else {}
    yield f"#   # {setup.flag}"
    for number, (key, value) in enumerate({**setup.entry, **model}.items()):
        text = scalar(value) if isinstance(value, str) else str(value).lower()
        yield f"#   {'-' if number == 0 else ' '} {key}: {text}"


def _logs(logs: list[FoundLog]) -> Iterator[str]:
    yield "# Request logs, followed through rotation; every complete line is taken once."
    if not logs:
        yield "# logs:"
        yield "#   - source: gateway"
        yield "#     path: /var/log/llm/*.jsonl"
    else:
        yield "logs:"
    for log in logs:
        first = counted(log.sampled, "row")
        read = f"; {log.read} of the first {first} are read" if log.sampled else ""
        yield from _comment(f"{log.because}{read}", "  ")
        if log.doubt:
            yield from _comment(f"Check this: {log.doubt}.", "  ")
        yield f"  - source: {scalar(log.source)}"
        yield f"    path: {scalar(log.path)}"
        yield f"    format: {scalar(log.format)}"
        yield "    # begin: end          # leaves out what is in the file already"
    yield ""


def _names(logs: list[FoundLog], file: str) -> Iterator[str]:
    """Rules as comments: who is called what is for people to decide."""
    with_paths = [log for log in logs if log.suggested]
    if not with_paths:
        return
    yield "# These fields of the rows look like names. Uncomment what fits, and try it first:"
    yield f"#   prefixscope names FILE --config {file} --source {scalar(with_paths[0].source)}"
    yield "# names:"
    for log in with_paths:
        yield f"#   {scalar(log.source)}:"
        for field, paths in log.suggested.items():
            yield f"#     {field}:"
            yield from (
                f"#       - {_rule(path)}    # in {rows} of {counted(log.sampled, 'row')}"
                for path, rows in paths
            )


def _rule(path: str) -> str:
    """Headers are named as such, so that their case does not matter."""
    place, _, key = path.rpartition(".")
    if place in HEADER_PLACES and '"' not in key:
        return f"header: {scalar(key)}"
    return f"field: {scalar(path)}"


def _remarks(remarks: list[Remark]) -> Iterator[str]:
    if not remarks:
        return
    yield "# Recognised, and no part of this file:"
    for remark in remarks:
        yield from _comment(f"- {remark.given}: {remark.what}", "", "  ")
        if remark.todo:
            yield from _comment(f"  {remark.todo}", "", "  ")


def _comment(text: str, margin: str, hanging: str = "") -> Iterator[str]:
    """Lines of comment, whatever the text holds: it came from somebody else."""
    clean = "".join(c if c.isprintable() else " " for c in text).rstrip()
    room, inset = _WIDTH - len(margin) - 2, ""
    while clean:
        cut = len(clean)
        if cut > room:
            cut = max(clean.rfind(" ", 1, room), 1) if " " in clean[2:room] else room
        yield f"{margin}# {inset}{clean[:cut].rstrip()}"
        clean, inset = clean[cut:].lstrip(), hanging


def scalar(text: str) -> str:
    """The text as YAML reads it back: plain where that is safe, else in double quotes."""
    if _PLAIN.fullmatch(text) and yaml.safe_load(f"[{text}]") == [text]:
        return text
    return yaml.safe_dump(text, default_style='"', width=math.inf).rstrip("\n")
