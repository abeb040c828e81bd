"""What the report cannot say with this data, and the one step to get it."""

from collections.abc import Iterator

from dashboard.report.week import DataState, Freed, Missing, WeekReport

ROWS = "prefixscope ingest requests.jsonl --source gateway"
ENGINES = "prefixscope serve --config prefixscope.yml   # with scrape targets"
TAP = "prefixscope tap --upstream URL"
EVENTS = "prefixscope serve --config prefixscope.yml   # with events"


def missing(report: WeekReport) -> tuple[Missing, ...]:
    """Per section, most important first. A week without traffic misses only that."""
    if report.data.level is None:
        return (Missing("headline", "The store is empty.", ROWS),)
    if report.headline.token_hit_ratio is None and not report.headline.requests:
        return (Missing("headline", _no_traffic(report.data), ""),)
    found = [*_headline(report), *_figures(report), *_movement(report), *_rest(report)]
    return tuple(found)


def _no_traffic(data: DataState) -> str:
    return f"There is no traffic in this week: {data.partial or 'nothing was asked'}."


def _headline(report: WeekReport) -> Iterator[Missing]:
    lead = report.headline
    if lead.basis == "engine":
        yield Missing(
            "headline",
            "Engine counters know models and replicas only: no route, template or tenant, no "
            "hits against misses, no money.",
            ROWS,
        )
    if lead.basis == "none":
        yield Missing(
            "headline",
            "The rows do not say what came from cache: let the engine report it "
            "(vLLM: --enable-prompt-tokens-details), or have its counters scraped.",
            "prefixscope doctor",
        )
    elif lead.coverage_ratio is not None and lead.coverage_ratio < 0.9:
        yield Missing(
            "headline",
            "More than a tenth of the prompt tokens do not say what came from cache.",
            "prefixscope doctor",
        )


def _figures(report: WeekReport) -> Iterator[Missing]:
    if report.headline.basis == "engine":
        for section in ("billed", "freed", "ttft"):
            yield Missing(section, "Takes request rows.", "")
        return
    if report.billed is None:
        yield Missing(
            "billed",
            "Of this week only roll-ups are left, which do not know what was written."
            if report.data.rolled_up
            else "No model of these rows has a known price: a file named in prices.file tells one.",
            "" if report.data.rolled_up else "prefixscope query prices",
        )
    if report.freed is None:
        yield Missing(
            "freed",
            "No prefill speed is known: it takes 100 requests of a replica with times to first "
            "token, on engines of your own.",
            TAP,
        )
    elif _has_no_price(report.freed):
        yield Missing("freed", "A GPU hour has no price, so that its worth is not told.",
                      "set prices.gpu_hour_price")  # fmt: skip
    if report.ttft is None:
        yield Missing("ttft", _no_pair(report), "" if report.outcomes else ROWS)


def _has_no_price(freed: Freed) -> bool:
    return freed.freed_usd is None


def _no_pair(report: WeekReport) -> str:
    if not report.outcomes:
        return "No row of the week that is still kept carries a time to first token."
    return "No class of prompt lengths has ten hits and ten misses to compare."


def _movement(report: WeekReport) -> Iterator[Missing]:
    against = {each.against for each in report.trust}
    if report.headline.basis == "log":
        if "engine" not in against:
            yield _no_engine(report)
        if "provider" not in against and report.billed is not None:
            yield Missing("trust", "No provider's usage report to compare the log with.",
                          "prefixscope backfill --usage openai --since 30d")  # fmt: skip
    if report.headline.token_hit_ratio_before is None:
        yield Missing("movers", "There is no week before to compare with.", "")
    elif report.headline.basis == "log" and not report.segments:
        yield Missing("movers", "Rows name no template, route, tenant or model.",
                      "prefixscope doctor   # which fields a log lacks")  # fmt: skip
    if report.peak is None:
        yield Missing("peak", _no_peak(report), "")


def _no_engine(report: WeekReport) -> Missing:
    if report.engine_ratio is None:
        return Missing("trust", "No engine counters to compare the log with.", ENGINES)
    return Missing(
        "trust",
        "Log and engine counters could not be compared: that takes five minutes that both tell "
        "of, and rows that name their model as the engines do.",
        "prefixscope query source_pairs",
    )


def _no_peak(report: WeekReport) -> str:
    if any(cell.is_drop for cell in report.hours):
        return "No hour with a usual ratio could be compared."
    return (
        "No hour fell below its usual ratio, or none could be judged: that takes a week of "
        "history or earlier hours of like load, and enough traffic."
    )


def _rest(report: WeekReport) -> Iterator[Missing]:
    if not report.missed.prompt_tokens:
        yield _nothing_explained(report)
    if not report.memory:
        yield Missing("memory", "No engine samples in the week: how full the KV memory was is "
                      "not known.", ENGINES)  # fmt: skip
    elif not any(row.basis for row in report.memory):
        yield Missing("memory", "Nothing tells reusable from free memory.", EVENTS)


def _nothing_explained(report: WeekReport) -> Missing:
    """Of what there is most says why no missed token has a cause."""
    most = max(report.missed.not_explained, key=lambda each: each.prompt_tokens, default=None)
    if most is None:
        return Missing("missed", "No request of the week was explained. It takes rows with chains "
                       "of block hashes.", TAP)  # fmt: skip
    return Missing("missed", *_WHY_NOT[most.reason])


_WHY_NOT = {
    "chainless": (
        "Requests carry no chains of block hashes, so nobody can tell what was seen before.", TAP
    ),
    "late": (
        "Requests came after their minutes were sealed; attribute explains them at once.",
        "prefixscope attribute --since 7d",
    ),
    "unreported": ("Requests do not report their cached tokens.", "prefixscope doctor"),
}  # fmt: skip
