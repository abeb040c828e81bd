"""The three figures of page one, which are never added together, and whom else they agree with."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta

from dashboard.figures.numbers import percent, whole
from dashboard.figures.rows import Row, Rows, at_point, count, number, points_of
from dashboard.figures.safe import plain
from dashboard.report.asking import Asking
from dashboard.report.detail_values import EngineTtft, OutcomeRow, PriceRow
from dashboard.report.week import Billed, Freed, Headline, Trust, TtftClass, TtftPair

# Fewer requests on one side say nothing about a class.
LEAST_REQUESTS = 10
# Counters are credited when a request ends, and rows bear the time of its start.
ENGINE_TOLERANCE_RATIO = 0.02
LEAST_DIFFERENCE_RATIO = 0.001
COMPARED = timedelta(days=1)
MOST_MODELS = 10
_REPORTERS = {
    "openai": "OpenAI",
    "anthropic": "Anthropic",
    "litellm_daily": "LiteLLM's daily tables",
}


def billed(ask: Asking) -> Billed | None:
    """What caching saved on bills; None where no token has a price."""
    row = ask.first("costs")
    saved, paid = number(row, "net_saved_usd"), number(row, "input_usd")
    if saved is None or paid is None:
        return None
    return Billed(
        net_saved_usd=saved,
        input_usd=paid,
        write_surcharge_usd=number(row, "write_surcharge_usd") or 0.0,
        priced_ratio=number(row, "priced_ratio") or 0.0,
        assumptions=str(row.get("assumptions") or ""),
        price_sources=str(row.get("price_sources") or ""),
    )


def freed(ask: Asking) -> Freed | None:
    """Prefill of our own engines that was not done; None where no prefill speed is known."""
    row = ask.first("costs")
    hours = number(row, "freed_gpu_hours")
    if hours is None:
        return None
    # Models that a provider bills free no GPU of ours, and are in no GPU-hour.
    own = {
        each["model"] for each in ask.rows("costs", by="model")
        if number(each, "freed_gpu_hours") is not None or number(each, "input_usd") is None
    }  # fmt: skip
    saved = [each for each in ask.rows("prefill", by="model") if each["model"] in own]
    return Freed(
        saved_tokens=sum(count(each, "saved_tokens") or 0 for each in saved),
        gpu_hours=hours,
        gpus_per_replica=count(row, "gpus_per_replica") or 1,
        freed_usd=number(row, "freed_gpu_usd"),
        unknown_speed_tokens=sum(count(each, "unpriced_saved_tokens") or 0 for each in saved),
    )


def prices(ask: Asking) -> tuple[PriceRow, ...]:
    """Costs by model, the most tokens first; the others in one row."""
    rows = sorted(
        ask.rows("costs", by="model"),
        key=lambda row: (-(count(row, "prompt_tokens") or 0), str(row["model"])),
    )
    if not any(number(row, "input_usd") is not None for row in rows):
        return ()
    made = [_price(row, plain(row["model"])) for row in rows[:MOST_MODELS]]
    rest = rows[MOST_MODELS:]
    if rest:
        made.append(_price(_summed(rest), f"{len(rest):,} others", len(rest)))
    return tuple(made)


def _price(row: Row, name: str, others: int = 0) -> PriceRow:
    return PriceRow(
        model=name,
        others=others,
        prompt_tokens=count(row, "prompt_tokens") or 0,
        input_usd=number(row, "input_usd"),
        net_saved_usd=number(row, "net_saved_usd"),
        write_surcharge_usd=number(row, "write_surcharge_usd"),
        priced_ratio=number(row, "priced_ratio"),
    )


def _summed(rows: Rows) -> Row:
    """Sums of what is known; the ratio of sums."""
    prompt, priced = (
        sum(count(row, column) or 0 for row in rows)
        for column in ("prompt_tokens", "priced_prompt_tokens")
    )
    usd = {
        column: _known_sum(number(row, column) for row in rows)
        for column in ("input_usd", "net_saved_usd", "write_surcharge_usd")
    }
    return {**usd, "prompt_tokens": prompt, "priced_ratio": priced / prompt if prompt else None}


def _known_sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def ttft_classes(ask: Asking) -> tuple[str, tuple[TtftClass, ...]]:
    """Hits and misses by prompt length, at the point with most requests; '' without a point."""
    rows = ask.rows("ttft_by_outcome", within="prompt")
    points = points_of(rows)
    if not points:
        return "", ()
    classes: dict[tuple[int, int], dict[str, Row]] = {}
    for row in at_point(rows, points[0]):
        bounds = (count(row, "within_from") or 0, count(row, "within_to") or 0)
        classes.setdefault(bounds, {})[str(row["outcome"])] = row
    return points[0], tuple(
        _class(bounds, outcomes) for bounds, outcomes in sorted(classes.items())
        if "hit" in outcomes or "miss" in outcomes
    )  # fmt: skip


def _class(bounds: tuple[int, int], outcomes: dict[str, Row]) -> TtftClass:
    hit, miss = outcomes.get("hit", {}), outcomes.get("miss", {})
    return TtftClass(
        *bounds,
        hit_requests=count(hit, "requests") or 0,
        miss_requests=count(miss, "requests") or 0,
        hit_p50_seconds=number(hit, "p50_seconds"),
        miss_p50_seconds=number(miss, "p50_seconds"),
    )


def ttft_pair(point: str, classes: Sequence[TtftClass]) -> TtftPair | None:
    """Medians at equal length, weighted by the hits of each class with enough of both."""
    both = [
        (each.hit_requests, each.hit_p50_seconds, each.miss_requests, each.miss_p50_seconds)
        for each in classes
        if min(each.hit_requests, each.miss_requests) >= LEAST_REQUESTS
    ]
    hits = sum(requests for requests, *_ in both)
    if not hits:
        return None
    return TtftPair(
        ttft_point=point,
        hit_seconds=sum(n * (hit or 0.0) for n, hit, _, _ in both) / hits,
        miss_seconds=sum(n * (miss or 0.0) for n, _, _, miss in both) / hits,
        hit_requests=hits,
        miss_requests=sum(requests for _, _, requests, _ in both),
    )


def outcomes(ask: Asking) -> tuple[OutcomeRow, ...]:
    """TTFT of all lengths together, by point and outcome."""
    order = {"hit": 0, "partial": 1, "miss": 2, "unknown": 3}
    rows = sorted(
        ask.rows("ttft_by_outcome"),
        key=lambda row: (str(row["ttft_point"]), order.get(str(row["outcome"]), 9)),
    )
    return tuple(
        OutcomeRow(
            ttft_point=str(row["ttft_point"]),
            outcome=str(row["outcome"]),
            requests=count(row, "requests") or 0,
            p50_seconds=number(row, "p50_seconds"),
            p90_seconds=number(row, "p90_seconds"),
            p95_seconds=number(row, "p95_seconds"),
            p99_seconds=number(row, "p99_seconds"),
        )
        for row in rows
        if row.get("ttft_point") is not None
    )


def engine_ttft(ask: Asking) -> tuple[EngineTtft, ...]:
    """The engines' own histogram by model, most requests first."""
    rows = sorted(
        ask.rows("engine_ttft", by="model"),
        key=lambda row: (-(count(row, "requests") or 0), str(row["model"])),
    )
    return tuple(
        EngineTtft(
            plain(row["model"]), count(row, "requests") or 0,
            number(row, "p50_seconds"), number(row, "p95_seconds"),
        )
        for row in rows[:MOST_MODELS]
    )  # fmt: skip


def trust(ask: Asking, lead: Headline, last: datetime) -> tuple[Trust, ...]:
    """The log against the engines' counters, and against every report of a provider there is."""
    found = []
    pairs = [row for row in told_by_two(ask, last) if row["kind"] == "log_and_engine"]
    if pairs and lead.basis == "log":
        found.append(_against_engine(pairs))
    # Reports are by UTC days: those of the same dates.
    days = datetime.combine(ask.week.monday, time(), UTC)
    by_reporter: dict[str, list[Row]] = {}
    for row in ask.rows("reconciliation", since=days, until=days + timedelta(days=7)):
        by_reporter.setdefault(str(row["reporter"]), []).append(row)
    found += [_against_provider(name, rows) for name, rows in sorted(by_reporter.items())]
    return tuple(found)


def told_by_two(ask: Asking, last: datetime) -> Rows:
    """What two sources told of the same thing in the day until `last`, the end of the traffic.

    Ids of all calls are compared: over a week of millions that takes more than a store is given.
    """
    since = max(ask.week.since, last - COMPARED)
    return ask.rows("source_pairs", since=since, until=last)


def _against_engine(pairs: Sequence[Row]) -> Trust:
    """Sums over the models and the time both tell of."""
    ours, theirs, our_cached, their_cached = (
        sum(count(row, f"{side}_{measure}_tokens") or 0 for row in pairs)
        for measure in ("prompt", "cached")
        for side in ("first", "second")
    )
    apart = (theirs - ours) / ours if ours else None
    agrees = apart is not None and abs(apart) <= ENGINE_TOLERANCE_RATIO
    said = (
        f"Log and engine counters {'agree' if agrees else 'differ'} in the last day both tell of: "
        f"{whole(ours)} and {whole(theirs)} prompt tokens{_difference(apart)}, "
        f"{whole(our_cached)} and {whole(their_cached)} of them cached."
    )
    return Trust("engine", "agrees" if agrees else "differs", said, apart)


def _against_provider(reporter: str, rows: Sequence[Row]) -> Trust:
    """Days and models that can be compared; one that differs makes the whole differ."""
    name = _REPORTERS.get(reporter, plain(reporter))
    told = [row for row in rows if row["verdict"] != "cannot be compared"]
    differ = [row for row in told if row["verdict"] == "differs"]
    if not told:
        why = next((plain(row["evidence"]) for row in rows if row.get("evidence")), "")
        reason = f" ({why})" if why else ""
        return Trust("provider", "cannot be compared", f"{name}: nothing to compare{reason}.", None)
    ours, theirs = (
        sum(count(row, f"{side}_prompt_tokens") or 0 for row in told) for side in ("our", "their")
    )
    apart = (ours - theirs) / theirs if theirs else None
    sums = f"{whole(ours)} prompt tokens here, {whole(theirs)} there{_difference(apart)}"
    if not differ:
        said = f"Agrees with {name} on all compared days and models ({len(told):,}): {sums}."
        return Trust("provider", "agrees", said, apart)
    worst = max(differ, key=lambda row: abs(count(row, "difference_tokens") or 0))
    said = (
        f"Differs from {name} on {len(differ):,} of {len(told):,} days and models: {sums}. "
        f"Largest: {plain(worst['model'])} on {worst['day']:%Y-%m-%d}"
        f"{_because(worst)}."
    )
    return Trust("provider", "differs", said, apart)


def _because(row: Row) -> str:
    reasons = str(row.get("reasons") or "").replace("_", " ")
    return f", likely {plain(reasons)}" if reasons else ", no reason found"


def _difference(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if abs(ratio) < LEAST_DIFFERENCE_RATIO:
        return " (apart by less than 0.1 %)"
    return f" ({'+' if ratio > 0 else '-'}{percent(abs(ratio))})"
