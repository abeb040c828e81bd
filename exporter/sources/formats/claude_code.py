"""Claude Code session transcripts (`~/.claude/projects/*/*.jsonl`).

Who writes it: the client, one line per block of an answer, so that one response is several
lines with one message id and the same usage; the last has the final output count. Resumed
sessions copy old lines into new files, with their ids and times. Load all files as one source
and each response is counted once.

A sub-agent is a conversation of its own: its session is the parent's with the agent behind it,
its template `subagent`. Lines that state no usage (what the user wrote, tool results, notes) are
no requests and are only counted. Messages the client itself wrote in place of an answer are set
aside. Times are of the answer: nothing tells when a request began. Text never travels on.
Versions read: Claude Code 2.0 (transcripts described in public, see docs/formats).
"""

from collections.abc import Iterable

from exporter.sources.formats.documents import inner, kept
from exporter.sources.formats.mapping import LogFormat, Row, text, time, tokens
from exporter.sources.formats.reshape import LEFT_OUT, one_object

_USAGE = (
    "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
)  # fmt: skip
_WRITTEN = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")


# Not read here: for naming rules.
_NAMEABLE = ("cwd", "gitBranch", "version", "userType")


def _responses(line: str) -> Iterable[Row]:
    entry = one_object(line)
    message = inner(entry, "message")
    usage = inner(message, "usage")
    if entry.get("type") != "assistant" or not usage:
        return [{LEFT_OUT: "states_no_usage", "rows": 1}]
    row = kept(entry, ("timestamp", "requestId")) | kept(message, ("id", "model"))
    row |= kept(usage, _USAGE) | kept(inner(usage, "cache_creation"), _WRITTEN)
    row |= kept(entry, _NAMEABLE)
    row["session"] = entry.get("sessionId")
    if entry.get("isSidechain") is True:
        row["template"] = "subagent"
        row["session"] = "/".join(
            str(entry[name]) for name in ("sessionId", "agentId") if entry.get(name)
        )
    if entry.get("isApiErrorMessage") is True or row.get("model") == "<synthetic>":
        row["skip"] = "written_by_the_client"
    return [row]


FORMAT = LogFormat(
    name="claude_code",
    title="Claude Code session transcripts",
    versions="Claude Code 2.0",
    basis="exclusive",
    signature=(("sessionId",), ("uuid",), ("type",)),
    fields=(
        text("skip", "skip"),
        time("ts", "timestamp"),
        text("request_id", "id"),
        text("session", "session"),
        text("template", "template"),
        text("model", "model"),
        tokens("prompt_tokens", "input_tokens"),
        tokens("cached_tokens", "cache_read_input_tokens"),
        tokens("cache_write_tokens", "cache_creation_input_tokens"),
        tokens("cache_write_5m", "ephemeral_5m_input_tokens"),
        tokens("cache_write_1h", "ephemeral_1h_input_tokens"),
        tokens("output_tokens", "output_tokens"),
    ),
    constants=(("provider", "anthropic"),),
    merges_lines=True,
    reshape=_responses,
)
