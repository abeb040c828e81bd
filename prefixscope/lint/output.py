"""What `lint` found, as people and programs want it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from prefixscope.lint.reading import PromptLog
from replay.counted import counted
from replay.layout.against import Comparison, Parting
from replay.layout.findings import Finding, Proof, Quote, Report, TemplateReport

# Of a quoted line; the value gets half of it, what stands around it the rest.
_MOST_CHARACTERS = 110
_MARKS = 6
_INDENT = 4
_LEAST_REQUESTS = 2
_WORDS = {
    "request": "with every request", "session": "with every session", "user": "with every user",
    "day": "with every day", "once": "once",
}  # fmt: skip
_FORMS = {"plain text": "prompts of plain text"}
_TOKENS = {
    "ids": "Tokens are those of the log",
    "tokenizer": "Tokens are of the tokenizer, without what the chat template adds",
    "approximate": "Tokens are approximate",
}


def as_json(report: Report, comparison: Comparison | None = None) -> str:
    """Everything but the text of prompts."""
    facts: dict[str, object] = {
        "requests": report.requests,
        "compared_requests": report.compared_requests,
        "block_tokens": report.block_tokens,
        "capacity_blocks": report.capacity_blocks,
        "tokens_are": report.tokens,
        "scale": report.scale,
        "unknown_joins": report.unknown_joins,
        **_proof(report.together),
        "templates": [_template(each, report) for each in report.templates],
    }
    if comparison is not None:
        facts["against"] = {
            "old_steady_token_hit_ratio": comparison.old_ratio,
            "new_steady_token_hit_ratio": comparison.new_ratio,
            "cold_tokens": scaled(comparison.cold_tokens, report),
            "first_segment": comparison.parting.segment if comparison.parting else None,
            "first_token_index": comparison.parting and scaled(
                comparison.parting.token_index, report),
            "added_findings": len(comparison.added),
            "is_worse": comparison.is_worse,
        }  # fmt: skip
    return json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)


def _template(template: TemplateReport, report: Report) -> dict[str, object]:
    return {
        "template": template.name,
        "requests": template.requests,
        "prompt_tokens": scaled(template.prompt_tokens, report),
        **_proof(template.together),
        "findings": [_finding(each, report) for each in template.findings],
    }


def _finding(finding: Finding, report: Report) -> dict[str, object]:
    return {
        "kind": finding.kind,
        "frequency": finding.frequency,
        "segment": finding.segment,
        "token_index": scaled(finding.token_index, report),
        "more_places": finding.more_places,
        "parted_ratio": finding.parted_ratio,
        "won_tokens": scaled(finding.won_tokens, report),
        "lost_tokens": scaled(finding.lost_tokens, report),
        "warm_at": _time(finding.warm_at),
        "suggestion": finding.suggestion,
        "requests": [quote.source for quote in finding.quotes],
        **_proof(finding.alone),
    }


def _proof(proof: Proof) -> dict[str, object]:
    return {
        "token_hit_ratio": proof.before_ratio,
        "mended_token_hit_ratio": proof.after_ratio,
    }


def _time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def scaled(tokens: int, report: Report) -> int:
    """Tokens as the log reports them, where it does."""
    return round(tokens * (report.scale or 1.0))


def print_report(console: Console, report: Report, log: PromptLog, quotes: bool) -> None:
    """The findings, what wins most first, with quotes of the text if wanted."""
    for line in _head(report, log):
        console.print(line, style="dim", markup=False, soft_wrap=True)
    console.print()
    number = 0
    for template in report.templates:
        if len(report.templates) > 1 and template.findings:
            console.print(
                f"Template {template.name}: {counted(template.requests, 'request')}, "
                f"{scaled(template.prompt_tokens, report):,} prompt tokens",
                style="bold", markup=False,
            )  # fmt: skip
        for finding in template.findings:
            number += 1
            _print_finding(console, number, finding, report, quotes)
    _print_together(console, report, number)
    for note in _notes(report, log):
        console.print(note, style="dim", markup=False, soft_wrap=True)


def _head(report: Report, log: PromptLog) -> Iterator[str]:
    forms = ", ".join(f"{count:,} {_FORMS.get(form, form)}" for form, count in log.forms.items())
    order = "in the order of their times" if report.ordered else "in the order of the file"
    yield f"{forms}, {order}"
    if report.compared_requests < report.requests:
        yield f"{report.compared_requests:,} of them compared, whole sessions; more with --requests"
    tokens = (
        f"{_TOKENS[report.tokens]}, scaled by {report.scale:.2f} to those reported"
        if report.scale and report.tokens != "ids" else _TOKENS[report.tokens]
    )  # fmt: skip
    size = (
        "a cache that loses nothing" if report.capacity_blocks is None
        else f"a cache of {counted(report.capacity_blocks, 'block')}"
    )  # fmt: skip
    yield f"{tokens}. Replayed through {size}, in blocks of {report.block_tokens} tokens"


def _print_finding(
    console: Console, number: int, finding: Finding, report: Report, quotes: bool
) -> None:
    index = scaled(finding.token_index, report)
    more = f" and {counted(finding.more_places, 'more place')}" if finding.more_places else ""
    console.print(Text.assemble(
        (f"{number:>2}  ", "dim"), (finding.kind, "bold yellow"),
        f" changes {_WORDS[finding.frequency]}: ", (finding.segment, "bold"),
        f", token {index:,}{more}",
    ))  # fmt: skip
    room = console.width - _INDENT
    lines = [shown(quote, room) for quote in finding.quotes] if quotes else []
    if finding.quotes and not quotes:
        lines += [Text(f"See {' and '.join(quote.source for quote in finding.quotes)}")]
    lines += [Text(finding.suggestion), Text.assemble(*_gain(finding, report))]
    for line in lines:
        console.print(Padding(line, (0, 0, 0, _INDENT), expand=False))
    console.print()


def _gain(finding: Finding, report: Report) -> Iterator[str | tuple[str, str]]:
    if finding.frequency == "once":
        lost = scaled(finding.lost_tokens, report)
        warm = _time(finding.warm_at)
        yield f"{lost:,} tokens were computed again{f'; warm by {warm}' if warm else ''}"
        return
    proof = finding.alone
    yield f"{finding.parted_ratio:.0%} of requests part here · mended alone: "
    yield f"{proof.before_ratio:.1%} → "
    yield (f"{proof.after_ratio:.1%}", "bold green" if proof.won_tokens > 0 else "")
    if len(report.findings) > 1:
        share = finding.won_tokens / max(report.together.prompt_tokens, 1)
        yield f" · with the rest: {100 * share:+.1f} points"


def shown(quote: Quote, room: int) -> Text:
    """One line of the user's own text, the volatile part marked, in so many characters."""
    room = max(min(room, _MOST_CHARACTERS) - _MARKS, 2 * _MARKS)
    value = _line(quote.value)
    if len(value) > room // 2:
        value = f"{value[: room // 2 - 1]}…"
    around = (room - len(value)) // 2
    before, behind = _line(quote.before)[-around:], _line(quote.behind)[:around]
    return Text.assemble((f"…{before}" if before else "", "dim"), (f"«{value}»", "yellow"),
                         (f"{behind}…" if behind else "", "dim"))  # fmt: skip


def _line(text: str) -> str:
    """White space as one sees it; a terminal must not obey what a prompt says."""
    visible = text.replace("\r", "␍").replace("\n", "⏎").replace("\t", "⇥")
    return "".join(sign if sign.isprintable() else "·" for sign in visible)


def _print_together(console: Console, report: Report, findings: int) -> None:
    proof = report.together
    if not proof.prompt_tokens:
        return
    if not findings:
        console.print(Text.assemble(
            ("Nothing found", "bold green"),
            f" that breaks reuse. Token hit ratio in replay: {proof.before_ratio:.1%}",
        ))  # fmt: skip
        return
    console.print(Text.assemble(
        "Token hit ratio in replay: ", (f"{proof.before_ratio:.1%}", "bold"), " as it is, ",
        (f"{proof.after_ratio:.1%}", "bold green"),
        " with all of it mended" if findings > 1 else " with it mended",
    ))  # fmt: skip


def _notes(report: Report, log: PromptLog) -> Iterator[str]:
    if report.requests < _LEAST_REQUESTS:
        yield (
            f"{report.requests} request shows nothing that changes: give several of the same "
            "template, in the order they came"
        )
    if report.unknown_joins:
        yield (
            f"{counted(report.unknown_joins, 'answer comes', 'answers come')} back as equal text; "
            "token identity unknown: "
            "only a log with token ids tells whether the tokens are equal too"
        )
    if log.skipped:
        count = sum(log.skipped.values())
        yield f"{counted(count, 'row')} left out; {log.first_skipped}"


def print_comparison(
    console: Console, comparison: Comparison, quotes: bool, in_common: bool = True
) -> None:
    """The check before a deploy, under the findings of the new log. `in_common`: does a prompt of
    the new log belong to one of the old?"""
    report = comparison.new
    console.print()
    console.print("Against the old version", style="bold")
    old, new = comparison.old_ratio, comparison.new_ratio
    if old is not None and new is not None:
        style = "bold red" if comparison.is_worse else "bold green"
        after = (f"{new:.1%}", style)
        console.print(Text.assemble(f"  steady token hit ratio  {old:.1%} → ", after))
    cold = scaled(comparison.cold_tokens, report)
    console.print(f"  cold, once per replica  {cold:,} tokens", highlight=False)
    if in_common:
        _print_parting(console, comparison.parting, report, quotes)
    else:
        console.print("  nothing in common: are these logs of the same template?")
    for finding in comparison.added:
        kind = (finding.kind, "bold yellow")
        console.print(Text.assemble("  new finding             ", kind, f" at {finding.segment}"))


def _print_parting(console: Console, parting: Parting | None, report: Report, quotes: bool) -> None:
    if parting is None:
        console.print("  parts first             nowhere")
        return
    index = scaled(parting.token_index, report)
    console.print(f"  parts first             {parting.segment} token {index:,}", markup=False)
    if quotes:
        for sign, quote in zip("-+", parting.quotes, strict=False):
            console.print(Text(f"    {sign} ") + shown(quote, console.width - 6), soft_wrap=True)
