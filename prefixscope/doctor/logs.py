"""Findings about one log. Pure: facts in, findings out."""

from collections.abc import Iterator

from prefixscope.doctor.facts import LogFacts, RowFacts
from prefixscope.doctor.findings import Finding, Severity
from replay.counted import counted

# Shares below which something is said in passing, above which it is a warning.
FEW_ROWS = 0.01
MANY_ROWS = 0.1
SILENT_SECONDS = 24 * 3600.0
# A median time to first token beyond the first is milliseconds read as seconds (200 ms are
# "200 s"); one below the second is seconds read as milliseconds (0.2 s are "0.0002 s").
LONGEST_TTFT_SECONDS = 300.0
SHORTEST_TTFT_SECONDS = 0.001
# No model reads a median prompt this long: these are characters or bytes.
LONGEST_PROMPT_TOKENS = 2_000_000

_ODD_COUNTS = {
    "cached_impossible": "more cached than prompt tokens; these rows count as unreported",
    "tiers_disagree": "the tiers do not add up to the cached tokens",
    "zero_prompt": "a prompt of 0 tokens, read as not reported",
    "usage_guessed": "counts the log itself only estimated, so they are not counted",
    "cached_capped": "cached tokens a little above the prompt, capped",
}
_ODD_ENOUGH = ("cached_impossible", "tiers_disagree", "usage_guessed")


def check_log(log: LogFacts) -> Iterator[Finding]:
    """Everything the rows of one source tell by themselves."""
    if log.error is not None:
        yield Finding("log-readable", Severity.FAULT, log.source, log.error, log.fix or "")
        return
    if not log.accepted and not log.rejected and not log.newest:
        yield Finding(
            "log-readable", Severity.NOTE, log.source,
            f"{log.path or 'the source'} has no rows yet",
        )  # fmt: skip
        return
    yield _readable(log)
    yield from _silent(log)
    yield from _rejected(log)
    yield from _basis(log)
    yield from _odd_counts(log)
    yield from _repeats(log)
    for rows in log.newest:
        yield from _units(log, rows)
        yield from _row_clock(log, rows)


def where(log: LogFacts, rows: RowFacts) -> str:
    """The log, and the model where it is told."""
    return f"{log.source}, model {rows.model}" if rows.model else log.source


def _readable(log: LogFacts) -> Finding:
    rows = sum(rows.rows for rows in log.newest)
    reported = sum(rows.reported_rows for rows in log.newest)
    eligible = sum(rows.eligible_rows for rows in log.newest)
    share = (
        f"; of the newest {counted(rows, 'row')} {reported:,} of {eligible:,} report cached tokens"
    )
    lately = log.accepted + log.duplicate
    read = f"{counted(lately, 'row') if lately else 'lately no rows'} of format {log.source_format}"
    note = " (read for this check; nothing follows it yet)" if log.sampled else ""
    return Finding("log-readable", Severity.OK, log.source, f"{read}{share if rows else ''}{note}")


def _silent(log: LogFacts) -> Iterator[Finding]:
    if log.silent_seconds is not None and log.silent_seconds > SILENT_SECONDS:
        yield Finding(
            "log-silent", Severity.NOTE, log.source,
            f"nothing has arrived for {log.silent_seconds / 3600:,.0f} hours",
            "if it should still be written, see whether its path or sender has changed",
        )  # fmt: skip


def _rejected(log: LogFacts) -> Iterator[Finding]:
    if not log.rejected:
        return
    read = log.accepted + log.duplicate + log.conflicting
    share = log.rejected / (read + log.rejected)
    severity = Severity.WARNING if share >= FEW_ROWS else Severity.NOTE
    reasons = ", ".join(
        f"{reject.rows:,} {reject.reason}{_example(reject.position, reject.detail)}"
        for reject in log.rejects[:3]
    )
    yield Finding(
        "rows-rejected", Severity.FAULT if not read else severity, log.source,
        f"{counted(log.rejected, 'row')} ({share:.1%}) could not be read: "
        f"{reasons or 'see rejects'}",
        f"prefixscope query rejects shows them; is the format {log.source_format} right?",
    )  # fmt: skip


def _example(position: int | None, detail: str | None) -> str:
    place = f" at position {position}" if position is not None else ""
    return f" (the latest{place}{f': {detail}' if detail else ''})" if place or detail else ""


def _basis(log: LogFacts) -> Iterator[Finding]:
    """Inclusive, exclusive or neither, with how many rows say so."""
    kinds = {
        name: sum(getattr(rows, f"{name}_rows") for rows in log.newest)
        for name in ("inclusive", "exclusive", "assumed", "unknown_basis")
    }
    total = sum(kinds.values())
    if not total:
        return
    told = ", ".join(f"{n:,} {name.removesuffix('_basis')}" for name, n in kinds.items() if n)
    if kinds["unknown_basis"] > MANY_ROWS * total:
        yield Finding(
            "prompt-basis", Severity.WARNING, log.source,
            f"it cannot be told whether prompt counts include cached tokens ({told}): unknown "
            "rows count as unreported",
            "log the usage object as the provider sent it, with its cached and total counts, and "
            "the provider's or model's name",
        )  # fmt: skip
    elif kinds["exclusive"] and kinds["inclusive"]:
        yield Finding(
            "prompt-basis", Severity.NOTE, log.source,
            f"some prompt counts include cached tokens and some leave them out ({told}); each "
            "row was read by what it proves",
        )  # fmt: skip
    elif kinds["assumed"] > MANY_ROWS * total:
        yield Finding(
            "prompt-basis", Severity.NOTE, log.source,
            f"prompt counts are taken to include cached tokens, as is usual; nothing proves it "
            f"({told})",
            "log total_tokens beside prompt and output tokens: their sum proves it",
        )  # fmt: skip
    else:
        yield Finding("prompt-basis", Severity.OK, log.source, f"how prompts are counted: {told}")


def _odd_counts(log: LogFacts) -> Iterator[Finding]:
    for flag, meaning in _ODD_COUNTS.items():
        rows = log.flags.get(flag, 0)
        if not rows:
            continue
        many = flag in _ODD_ENOUGH and rows >= FEW_ROWS * max(log.accepted, 1)
        yield Finding(
            "counts-odd", Severity.WARNING if many else Severity.NOTE, log.source,
            f"{counted(rows, 'row')} flagged {flag}: {meaning}",
            "see what writes the counts" if many else "",
        )  # fmt: skip


def _repeats(log: LogFacts) -> Iterator[Finding]:
    rows = log.accepted + log.duplicate + log.conflicting
    if log.conflicting:
        many = log.conflicting >= FEW_ROWS * rows
        yield Finding(
            "duplicates", Severity.WARNING if many else Severity.NOTE, log.source,
            f"{counted(log.conflicting, 'row contradicts', 'rows contradict')} an earlier row "
            "of the same id; the first stays",
            "give every call an id of its own, and every attempt its number" if many else "",
        )  # fmt: skip
    if log.duplicate > MANY_ROWS * rows:
        yield Finding(
            "duplicates", Severity.NOTE, log.source,
            f"{log.duplicate:,} of {counted(rows, 'row')} came more than once; each counts once",
        )  # fmt: skip
    without = log.flags.get("no_id", 0)
    if without > FEW_ROWS * max(log.accepted, 1):
        yield Finding(
            "duplicates", Severity.WARNING, log.source,
            f"{counted(without, 'row')} came over HTTP without an id: sent twice, they count twice",
            "let the sender add the request id",
        )  # fmt: skip


def _units(log: LogFacts, rows: RowFacts) -> Iterator[Finding]:
    ttft, prompt = rows.median_ttft_seconds, rows.median_prompt_tokens
    if ttft is not None and not SHORTEST_TTFT_SECONDS <= ttft <= LONGEST_TTFT_SECONDS:
        wrong = ("milliseconds", "seconds") if ttft > LONGEST_TTFT_SECONDS else ("seconds", "ms")
        yield Finding(
            "units", Severity.WARNING, where(log, rows),
            f"the median time to first token is {ttft:,.6g} s: {wrong[0]} read as {wrong[1]}?",
            "write ttft_seconds in seconds (ttft_ms is not read), or say the right --format",
        )  # fmt: skip
    if prompt is not None and prompt > LONGEST_PROMPT_TOKENS:
        yield Finding(
            "units", Severity.WARNING, where(log, rows),
            f"the median prompt has {prompt:,.0f} tokens: are these characters or bytes?",
            "write the counts of the usage object",
        )  # fmt: skip
    late = log.flags.get("ttft_equals_end", 0)
    if late > MANY_ROWS * max(log.accepted, 1) and rows is log.newest[0]:
        yield Finding(
            "units", Severity.WARNING, log.source,
            f"{counted(late, 'row has', 'rows have')} their first token at their end or later, "
            "so it is left out: either the unit is wrong, or answers are not streamed",
            "write both times in seconds; log stream: false for answers in one piece",
        )  # fmt: skip


def _row_clock(log: LogFacts, rows: RowFacts) -> Iterator[Finding]:
    if rows.ahead_rows:
        yield Finding(
            "log-clock", Severity.WARNING, where(log, rows),
            f"{rows.ahead_rows:,} of {counted(rows.rows, 'row')} began after they arrived, up to "
            f"{rows.max_ahead_seconds or 0:,.0f} s: a clock is wrong, or local times are written "
            "as UTC",
            "synchronise the clocks, and write times with their zone",
        )  # fmt: skip
    elif log.flags.get("no_time", 0) > MANY_ROWS * max(log.accepted, 1) and rows is log.newest[0]:
        yield Finding(
            "log-clock", Severity.NOTE, log.source,
            f"{counted(log.flags['no_time'], 'row has', 'rows have')} no time: the arrival counts",
            "log when each request began, in UTC",
        )  # fmt: skip
