"""How a waterfall of causes is written: for people, or for programs."""

import json
from collections.abc import Iterator

import pyarrow as pa

from prefixscope import output
from prefixscope.consoles import terminal
from prefixscope.output import Output
from prefixscope.tables import Column, formatter, print_rows
from prefixscope.waterfall.attribution import WARMING, Sums, Waterfall
from prefixscope.waterfall.audit_output import Audits
from prefixscope.waterfall.compared import Compared
from replay.causes import CAUSES
from replay.counted import counted


def write(found: Waterfall, by: str | None, as_: Output, audits: Audits) -> int:
    """Write to standard output; returns how many columns a terminal had no room for. csv is of the
    waterfall alone."""
    if as_ is Output.JSON:
        facts = as_json(found, by) | audits.facts()
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    elif as_ is Output.CSV:
        output.write(Output.CSV, pa.Table.from_pylist(_rows(found, by)))
    else:
        left_out = _print(found, by)
        audits.print(terminal())
        return left_out
    return 0


def as_json(found: Waterfall, by: str | None) -> dict[str, object]:
    """cached_tokens + the sum of causes = prompt_tokens, in the whole and in every group."""
    facts = _sums(found.total)
    facts["rules"] = found.rules
    facts["cached_tokens_are"] = "modelled" if found.is_modelled else "observed"
    facts["warming"] = found.warming
    facts["overruled_requests"] = found.overruled_requests
    facts["unplaced_requests"] = found.unplaced_requests
    facts["approximate_requests"] = found.approximate_requests
    facts["unfit_requests"] = found.unfit_requests
    if found.compared is not None:
        facts["model"] = vars(found.compared)
    if by is not None:
        facts["groups"] = [{by: value, **_sums(sums)} for value, sums in found.groups.items()]
    return facts


def _sums(sums: Sums) -> dict[str, object]:
    return {
        "requests": sums.requests,
        "prompt_tokens": sums.prompt_tokens,
        "cached_tokens": sums.cached_tokens,
        "causes": sums.causes,
        "details": sums.details,
        "eligible_prompt_tokens": sums.eligible_prompt_tokens,
        "token_hit_ratio": sums.token_hit_ratio,
        "unreported_requests": sums.unreported_requests,
        "unreported_prompt_tokens": sums.unreported_prompt_tokens,
        "chainless_requests": sums.chainless_requests,
        "chainless_prompt_tokens": sums.chainless_prompt_tokens,
        "warm_before_log_tokens": sums.warm_before_log_tokens,
    }


def _rows(found: Waterfall, by: str | None) -> list[dict[str, object]]:
    """A row for each group, else one: causes as columns. None where no request of it tells its
    cached tokens: nobody knows of any that they are 0."""
    sums = found.groups if by is not None else {"": found.total}
    return [
        {**({} if by is None else {by: value}), "requests": each.requests, **_tokens(each)}
        for value, each in sums.items()
    ]


def _tokens(sums: Sums) -> dict[str, int | None]:
    told: dict[str, int | None] = {
        "prompt_tokens": sums.prompt_tokens,
        "cached_tokens": sums.cached_tokens,
        **{f"{name}_tokens": sums.causes[name] for name in CAUSES},
    }
    return told if sums.requests else dict.fromkeys(told)


def _print(found: Waterfall, by: str | None) -> int:
    console = terminal()
    total = found.total
    for rule in found.rules:
        console.print(f"Rule: {rule}", markup=False, style="dim")
    left_out = 0
    if by is None:
        print_rows(console, _COLUMNS, _lines(total))
    else:
        shown = [f"{name}_tokens" for name in CAUSES if total.causes[name]]
        names = [by, "prompt_tokens", "cached_tokens", *shown]
        headed = [(name.replace("_", " "), name, formatter(name)) for name in names]
        left_out = len(headed) - print_rows(console, headed, _rows(found, by))
    for note in _notes(found):
        console.print(note, markup=False, soft_wrap=True)
    return left_out


_COLUMNS: list[Column] = [
    ("", "name", str),
    ("tokens", "tokens", formatter("tokens")),
    ("of prompt", "share_ratio", formatter("share_ratio")),
    ("meaning", "meaning", str),
]
_MEANING = {
    "unserved": "the cache held it and did not serve it",
    "evicted": "was on this replica since its last reset, and made room",
    "expired": "was there, and its lifetime ended",
    "reset": "was lost by a restart or a clear",
    "routed": "another replica had computed it",
    "concurrent": "was being computed by a request beside it",
    "isolated": "is known in another scope only",
    "redeployed": "is known of another model or version only",
    "layout": "the same content stood in another place before",
    "new": "never seen before",
    "rounding": "less than a block, or the last token",
    "ineligible": "no cache could serve it",
    "unexplained": "its blocks have no names",
}


def _lines(sums: Sums) -> list[dict[str, object]]:
    """prompt, cached, and every cause that took a token, in the order they are told."""
    whole = sums.prompt_tokens
    lines = [("prompt", whole, "requests with known cached tokens"),
             ("cached", sums.cached_tokens, "")]  # fmt: skip
    lines += [(name, sums.causes[name], _MEANING[name]) for name in CAUSES if sums.causes[name]]
    return [
        {"name": name, "tokens": tokens if sums.requests else None,
         "share_ratio": tokens / whole if whole else None, "meaning": meaning}
        for name, tokens, meaning in lines
    ]  # fmt: skip


def _notes(found: Waterfall) -> Iterator[str]:
    """What a reader must know beside the figures."""
    total = found.total
    if found.is_modelled:
        yield "The rows tell no cached tokens: they are those of a modelled cache."
    if total.requests and total.token_hit_ratio is None:
        yield "Token hit ratio: no data, as no cache could serve any of these requests."
    if found.warming:
        yield (
            f"{total.details[WARMING]:,} of the new tokens came within 7 days of the first row with"
            " a chain: what is new to those rows may be older than they are."
        )
    if total.warm_before_log_tokens:
        yield (
            f"{total.warm_before_log_tokens:,} cached tokens of requests with a chain were there"
            " before the log began."
        )
    yield from _without_causes(total)
    yield from _judged_otherwise(found)
    if found.compared is not None:
        yield _predicted(found.compared)


def _judged_otherwise(found: Waterfall) -> Iterator[str]:
    """The requests that were judged by less, or by another thing, than their rows state."""
    if found.overruled_requests:
        yield (
            f"{counted(found.overruled_requests, 'request was', 'requests were')} judged by "
            "another block than the row or the events of its replica state."
        )
    if found.unplaced_requests:
        yield (
            "Neither rows nor events tell which replica served "
            f"{counted(found.unplaced_requests, 'request')}: taken for the first."
        )
    if found.unfit_requests:
        yield (
            f"{counted(found.unfit_requests, 'request is', 'requests are')} left out: hashes and "
            "the block to judge by do not go into each other (--block-tokens or --rule names "
            "another)."
        )
    if found.approximate_requests:
        yield (
            f"Approximate: {counted(found.approximate_requests, 'request is', 'requests are')} "
            "known by chunks of text, which stand for tokens by scale; a tokenizer "
            "(--tokenizer) tells them exactly."
        )


def _predicted(compared: Compared) -> str:
    """How well a modelled cache tells what was observed."""
    agreed = compared.requests - compared.differing_requests
    return (
        f"A cache of {counted(compared.capacity_blocks, 'block')} predicts {agreed:,} of "
        f"{counted(compared.requests, 'request')}, and {compared.predicted_tokens:,} cached tokens "
        f"for {compared.observed_tokens:,} observed; {compared.by_answers:,} of the others depend "
        "on generated tokens, which logs do not name."
    )


def _without_causes(total: Sums) -> Iterator[str]:
    """The requests of which nobody can tell why they missed."""
    if total.unreported_requests:
        yield (
            f"{counted(total.unreported_requests, 'request tells', 'requests tell')} no cached "
            f"tokens: of {total.unreported_prompt_tokens:,} prompt tokens there are no causes."
        )
    if total.chainless_requests:
        yield (
            f"{counted(total.chainless_requests, 'request has', 'requests have')} no chain: "
            f"{total.chainless_prompt_tokens:,} prompt tokens are counted here, and nothing tells "
            "why they missed (the question waterfall leaves them out)."
        )
