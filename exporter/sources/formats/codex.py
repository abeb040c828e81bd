"""Codex session transcripts (`~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`).

Who writes it: the client. `token_count` events state the session's total and the usage of the
last response; one response is one request. An event that repeats the total (the display was
refreshed) is no further request, one with `info: null` states no usage at all. A forked session
or sub-agent begins with the parent's history, written anew within a moment: those events were
counted where they happened. Who asked which model stands in earlier lines, so that a transcript
is read from its start and cannot be followed. Times are of the answer. Text never travels on.
Versions read: Codex 0.58 to 0.145 (transcripts described in public, see docs/formats).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import BinaryIO

from exporter.sources.formats.documents import inner, json_lines, number
from exporter.sources.formats.mapping import LogFormat, Row, text, time, tokens

_COUNTS = ("input_tokens", "cached_input_tokens", "output_tokens", "total_tokens")
_EVENT = re.compile(
    r'^\{"timestamp"\s*:\s*"[^"]*"\s*,\s*"type"\s*:\s*'
    r'"(session_meta|turn_context|event_msg|response_item)"\s*,\s*"payload"\s*:',
    re.MULTILINE,
)
# How long writing the parent's history takes; no response comes so soon after a start.
_REPLAYED = timedelta(seconds=2)


@dataclass
class _Session:
    """What earlier lines of a transcript say about the next usage."""

    name: str | None = None
    provider: object = None
    model: object = None
    forked: bool = False
    template: str | None = None
    cwd: object = None
    began: datetime | None = None
    total: tuple[object, ...] | None = None
    requests: int = 0

    def replays(self, at: datetime | None) -> bool:
        """Whether a line of this time is the history a fork begins with."""
        if not self.forked or at is None or self.began is None:
            return False
        return at - self.began <= _REPLAYED


def _requests(stream: BinaryIO) -> Iterator[Row | str]:
    session = _Session()
    for line, entry in json_lines(stream):
        payload = inner(entry, "payload")
        at = _moment(entry.get("timestamp"))
        if line and not entry:
            yield line
        elif entry.get("type") == "session_meta" and not session.replays(at):
            session = _begun(payload, at)
            yield ""
        elif entry.get("type") == "turn_context":
            session.model = payload.get("model") or session.model
            yield ""
        elif payload.get("type") == "token_count":
            yield _request(session, payload, entry.get("timestamp"), at) or ""
        else:
            yield ""


def _begun(meta: dict[str, object], at: datetime | None) -> _Session:
    spawned = meta.get("thread_source") == "subagent" or bool(inner(meta, "source", "subagent"))
    return _Session(
        name=str(meta["id"]) if meta.get("id") else None,
        provider=meta.get("model_provider"),
        forked=spawned or bool(meta.get("forked_from_id") or meta.get("parent_thread_id")),
        template="subagent" if spawned else None,
        cwd=meta.get("cwd"),
        began=at,
    )


def _request(
    session: _Session, payload: dict[str, object], timestamp: object, at: datetime | None
) -> Row | None:
    """The request a usage tells of; None where it tells of no new one."""
    info = inner(payload, "info")
    counts = inner(info, "total_token_usage")
    total = tuple(counts.get(name) for name in _COUNTS) if counts else None
    before, session.total = session.total, total or session.total
    if not info or (total is not None and total == before):
        return None
    session.requests += 1
    if session.replays(at):
        return {"skip": "replayed_by_a_fork"}
    usage = inner(info, "last_token_usage") or _risen(counts, before)
    return {
        "ts": timestamp,
        "id": f"{session.name}:{total[-1]}" if session.name and total else None,
        "session": session.name,
        "turn": session.requests,
        "template": session.template,
        "cwd": session.cwd,  # not read here: for naming rules
        "provider": session.provider,
        "model": session.model,
        **{name: usage.get(name) for name in _COUNTS},
    }


def _risen(counts: dict[str, object], before: tuple[object, ...] | None) -> dict[str, object]:
    """What the totals rose by, for clients that state nothing else."""
    rises: dict[str, object] = {}
    for name, earlier in zip(_COUNTS, before or (0,) * len(_COUNTS), strict=True):
        now, then = number(counts.get(name)), number(earlier)
        rises[name] = now - (then or 0) if now is not None else None
    return rises


def _moment(text_of_time: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text_of_time))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _sniff(head: str) -> str | None:
    return "lines are events of a Codex session" if _EVENT.search(head) else None


FORMAT = LogFormat(
    name="codex",
    title="Codex session transcripts",
    versions="Codex 0.58 to 0.145",
    basis="inclusive",
    signature=(
        ("timestamp",),
        ("type",),
        ("payload.info", "payload.rate_limits", "payload.cli_version", "payload.approval_policy"),
    ),
    fields=(
        text("skip", "skip"),
        time("ts", "ts"),
        text("request_id", "id"),
        text("session", "session"),
        tokens("turn", "turn"),
        text("template", "template"),
        text("provider", "provider"),
        text("model", "model"),
        tokens("prompt_tokens", "input_tokens"),
        tokens("cached_tokens", "cached_input_tokens"),
        tokens("output_tokens", "output_tokens"),
    ),
    documents=_requests,
    sniff=_sniff,
)
