"""Fewer pages, the same sums: whatever counters do, and however the history is cut."""

from hypothesis import example, given
from hypothesis import strategies as st

from exporter.sources.engines.reading import read_page
from exporter.sources.increase import advance
from exporter.sources.prometheus.api import RawSeries
from exporter.sources.prometheus.pages import PastPage, pages_of, thinned
from exporter.sources.target_state import TargetIdentity, TargetState

TARGET = {"job": "vllm", "instance": "a"}
NAME = "vllm:prompt_tokens_total"
# Per scrape: what each of two ranks did: rose by so much, began anew, was not there; or the
# scrape failed, or there was none for ten minutes.
Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["rise", "rise", "rise", "reset", "one gone", "failed", "hole"]),
        st.integers(0, 50), st.integers(0, 50),
    ),
    min_size=2, max_size=40,
)  # fmt: skip


def history(told: list[Step]) -> list[RawSeries]:
    """The series a Prometheus would have, every 15 s."""
    times: dict[str, list[int]] = {"up": [], "0": [], "1": []}
    values: dict[str, list[str]] = {"up": [], "0": [], "1": []}
    counters, unix_ms = {"0": 100, "1": 100}, 1_000_000
    for what, first, second in told:
        unix_ms += 600_000 if what == "hole" else 15_000
        times["up"].append(unix_ms)
        values["up"].append("0" if what == "failed" else "1")
        if what == "failed":
            continue
        for rank, amount in (("0", first), ("1", second)):
            counters[rank] = amount if what == "reset" else counters[rank] + amount
            if what != "one gone" or rank == "0":
                times[rank].append(unix_ms)
                values[rank].append(str(counters[rank]))
    series = [RawSeries({"__name__": "up", **TARGET}, tuple(times["up"]), tuple(values["up"]))]
    for rank in ("0", "1"):
        labels = {"__name__": NAME, "engine": rank, "model_name": "m", **TARGET}
        series.append(RawSeries(labels, tuple(times[rank]), tuple(values[rank])))
    return series


def total(pages: list[PastPage]) -> int:
    """Prompt tokens over all pages, as the store would have them."""
    state, who, told = TargetState(), TargetIdentity("t", "r", interval_seconds=15), 0
    for page in pages:
        if page.text is None:
            state.fail(page.unix)
        else:
            read = read_page(page.text.encode(), "text/plain", None, state.ranked)
            told += sum(s.prompt_tokens or 0 for s in advance(state, read, page.unix, who))
    return told


def cut(series: list[RawSeries], since: float, until: float) -> list[RawSeries]:
    """What an answer for this window holds."""
    told = []
    for one in series:
        pairs = [(t, v) for t, v in zip(one.times, one.values, strict=True)
                 if since * 1000 <= t <= until * 1000]  # fmt: skip
        told.append(RawSeries(one.labels, tuple(t for t, _ in pairs), tuple(v for _, v in pairs)))
    return told


@given(steps, st.sampled_from([20.0, 45.0, 100.0, 10_000.0]))
# A rank that was away begins anew: what the other one did meanwhile must not go with it.
@example([("reset", 1, 1), ("one gone", 0, 0), ("one gone", 1, 0), ("reset", 2, 0)], 20.0)
def test_thinned_sums_are_those_of_all(told: list[Step], every: float) -> None:
    series = history(told)
    pages = pages_of(series, TARGET)
    kept = thinned(series, pages, None, every, 1e9, final=True)
    assert total(kept) == total(pages)
    assert set(kept) <= set(pages)


@given(steps, st.sampled_from([20.0, 100.0, 10_000.0]), st.integers(20, 700))
def test_the_pages_kept_do_not_depend_on_where_answers_end(
    told: list[Step], every: float, window: int
) -> None:
    series = history(told)
    end = max(series[0].times) / 1000
    whole = thinned(series, pages_of(series, TARGET), None, every, end, final=True)
    kept: list[PastPage] = []
    seen, until = None, 1_000.0
    while until < end:
        until = min(until + window, end)
        part = cut(series, 0.0 if seen is None else seen, until)
        pages = pages_of(part, TARGET)
        kept += thinned(part, pages, seen, every, until, final=until == end)
        seen = max((page.unix for page in kept if page.text is not None), default=None)
    good = [page for page in kept if page.text is not None]
    assert good == [page for page in whole if page.text is not None]
