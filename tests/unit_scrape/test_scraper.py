"""Polling real pages on loopback into a real store: up, down, gone, frozen, restarted."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.records import EngineSample
from exporter.sources.frozen import served_meanwhile
from exporter.sources.scrape import Scraper, ScrapeSettings
from exporter.sources.target_state import TargetState
from exporter.store.samples import TargetRow, load_targets, upsert_targets
from exporter.store.store import Store
from tests.running import eventually

Pages = dict[str, tuple[str | None, str]]
Serve = Callable[[Pages], str]
TEXT = "text/plain; version=0.0.4"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store")
    yield opened
    opened.close()


def page(prompt: int, cached: int = 0, running: int = 0) -> str:
    return (
        f'vllm:prompt_tokens_total{{engine="0",model_name="m"}} {prompt}\n'
        f'vllm:prompt_tokens_cached_total{{engine="0",model_name="m"}} {cached}\n'
        f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}\n'
    )


def scraper_of(store: Store, targets: dict[str, object], **more: object) -> Scraper:
    return Scraper(store, ScrapeSettings.model_validate({"targets": targets, **more}))


@contextmanager
def polling(scraper: Scraper) -> Iterator[Scraper]:
    try:
        yield scraper
    finally:
        scraper.stop()


def sums(store: Store, replica: str) -> tuple[int | None, int | None]:
    row = (
        store.cursor()
        .execute(
            "SELECT sum(prompt_tokens)::BIGINT, sum(cached_tokens)::BIGINT FROM engine_samples"
            " WHERE replica = ?",
            [replica],
        )
        .fetchone()
    )
    assert row is not None
    return row[0], row[1]


def test_increases_reach_the_store(store: Store, serve: Serve) -> None:
    pages: Pages = {"/metrics": (TEXT, page(5000, 100))}
    static = [{"url": serve(pages), "name": "a", "replica": "gpu-0", "role": "prefill"}]
    with polling(scraper_of(store, {"static": static})) as scraper:
        scraper.scrape_once()
        assert sums(store, "gpu-0") == (None, None)
        pages["/metrics"] = (TEXT, page(5300, 250))
        answers = scraper.scrape_once()
    assert sums(store, "gpu-0") == (300, 150)
    assert [answer.error for answer in answers] == [None]
    row = load_targets(store.cursor())["a"]
    assert (row.engine, row.up, row.error) == ("vllm", True, None)
    assert row.url is not None
    assert row.last_success is not None
    assert datetime.now(UTC) - row.last_success < timedelta(minutes=1)
    assert row.duration_seconds is not None
    assert "vllm:prefix_cache_hits_total" in row.missing_metrics
    roles = store.cursor().execute("SELECT DISTINCT role, model FROM engine_samples").fetchall()
    assert roles == [("prefill", "m")]


def test_an_exporter_that_restarts_goes_on_where_it_stopped(store: Store, serve: Serve) -> None:
    pages: Pages = {"/metrics": (TEXT, page(5000))}
    static = [{"url": serve(pages), "name": "a"}]
    for prompt in (5000, 5100, 5250):
        pages["/metrics"] = (TEXT, page(prompt))
        with polling(scraper_of(store, {"static": static})) as scraper:
            scraper.scrape_once()
    assert sums(store, "a") == (250, 0)


def test_a_target_that_comes_back_brings_its_increase_and_a_gap(store: Store, serve: Serve) -> None:
    pages: Pages = {"/metrics": (TEXT, page(10))}
    url = serve(pages)
    with polling(scraper_of(store, {"static": [{"url": url, "name": "a"}]})) as scraper:
        scraper.scrape_once()
        whole = pages.pop("/metrics")
        scraper.scrape_once()
        row = load_targets(store.cursor())["a"]
        assert (row.up, row.error) == (False, "the target answered HTTP 404 Not Found")
        assert row.engine == "vllm"
        pages["/metrics"] = whole
        pages["/metrics"] = (TEXT, page(17))
        scraper.scrape_once()
    assert sums(store, "a") == (7, 0)
    gaps = store.cursor().execute("SELECT gap FROM engine_samples ORDER BY ts").fetchall()
    assert gaps == [(False,), (True,)]
    assert load_targets(store.cursor())["a"].up


def test_t48_a_removed_target_leaves_the_current_state_and_keeps_its_samples(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    pages: Pages = {"/metrics": (TEXT, page(10))}
    url_a, url_b = (serve(pages).removeprefix("http://") for _ in range(2))
    file = tmp_path / "targets.json"
    file.write_text(json.dumps([{"targets": [url_a, url_b]}]))
    left: list[set[str]] = []
    settings = ScrapeSettings.model_validate({"targets": {"file_sd": [{"files": [str(file)]}]}})
    with store.write() as cursor:
        upsert_targets(cursor, [TargetRow("recorded pages")])
    with polling(Scraper(store, settings, on_replicas=left.append)) as scraper:
        scraper.scrape_once()
        assert set(load_targets(store.cursor())) == {url_a, url_b, "recorded pages"}
        file.write_text(json.dumps([{"targets": [url_a]}]))
        scraper.scrape_once()
        assert set(load_targets(store.cursor())) == {url_a, "recorded pages"}
        file.write_text("- [")
        scraper.scrape_once()
        assert set(load_targets(store.cursor())) == {url_a, "recorded pages"}
        assert "neither JSON nor YAML" in next(iter(scraper._discovery.errors.values()))
    assert left == [{url_a}]
    replicas = store.cursor().execute("SELECT DISTINCT replica FROM engine_samples").fetchall()
    assert {replica for (replica,) in replicas} == {url_a, url_b}


def test_t48_a_target_removed_while_the_exporter_was_down_takes_no_other_with_it(
    store: Store, serve: Serve
) -> None:
    pages: Pages = {"/metrics": (TEXT, page(10))}
    both = [{"url": serve(pages), "name": name} for name in ("a", "b")]
    with polling(scraper_of(store, {"static": both})) as scraper:
        scraper.scrape_once()
    left: list[set[str]] = []
    settings = ScrapeSettings.model_validate({"targets": {"static": both[:1]}})
    with polling(Scraper(store, settings, on_replicas=left.append)) as scraper:
        scraper.scrape_once()
    assert left == [{"a"}]
    assert set(load_targets(store.cursor())) == {"a"}


def test_t48_a_list_that_cannot_be_read_at_start_removes_nothing(
    store: Store, tmp_path: Path
) -> None:
    with store.write() as cursor:
        upsert_targets(cursor, [TargetRow("a:1", url="http://a:1/metrics", series="")])
    targets = {"file_sd": [{"files": [str(tmp_path / "gone.json")]}]}
    with polling(scraper_of(store, targets)) as scraper:
        scraper.scrape_once()
    assert set(load_targets(store.cursor())) == {"a:1"}


def test_t48_a_list_that_never_worked_keeps_no_target_that_another_dropped(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    pages: Pages = {"/metrics": (TEXT, page(10))}
    file = tmp_path / "targets.json"
    file.write_text(json.dumps([{"targets": [serve(pages).removeprefix("http://")]}]))
    with store.write() as cursor:
        upsert_targets(cursor, [TargetRow("a:1", url="http://a:1/metrics", series="")])
    files = [{"files": [str(path)]} for path in (file, tmp_path / "typing-error.json")]
    with polling(scraper_of(store, {"file_sd": files})) as scraper:
        scraper.scrape_once()
        assert len(load_targets(store.cursor())) == 2
        file.write_text("[]")
        scraper.scrape_once()
        assert set(load_targets(store.cursor())) == {"a:1"}


def test_t52_a_page_without_content_type_is_up_with_a_word_of_warning(
    store: Store, serve: Serve
) -> None:
    pages: Pages = {"/metrics": (None, page(10))}
    with polling(scraper_of(store, {"static": [{"url": serve(pages), "name": "a"}]})) as scraper:
        scraper.scrape_once()
    row = load_targets(store.cursor())["a"]
    assert row.up
    assert "read as classic text" in (row.error or "")


def test_t13_a_page_of_no_engine_is_down_not_zero(store: Store, serve: Serve) -> None:
    pages: Pages = {"/metrics": (TEXT, "node_load1 1\n")}
    with polling(scraper_of(store, {"static": [{"url": serve(pages), "name": "a"}]})) as scraper:
        scraper.scrape_once()
    row = load_targets(store.cursor())["a"]
    assert (row.up, row.engine) == (False, None)
    assert "no metric of vllm, sglang, llamacpp" in (row.error or "")
    assert sums(store, "a") == (None, None)


def test_the_background_loop_polls_and_stops(store: Store, serve: Serve) -> None:
    pages: Pages = {"/metrics": (TEXT, page(10))}
    url = serve(pages)
    taken: list[EngineSample] = []
    settings = ScrapeSettings.model_validate(
        {"interval_seconds": 0.3, "targets": {"static": [{"url": url, "name": "a"}]}}
    )
    scraper = Scraper(store, settings, on_samples=taken.extend)
    scraper.start()
    assert scraper.alive
    eventually("third sample", lambda: len(taken) >= 3)
    scraper.stop()
    assert not scraper.alive
    count = store.cursor().execute("SELECT count(*) FROM engine_samples").fetchone()
    assert count == (len(taken),)


def test_samples_wait_while_the_store_cannot_be_written(
    store: Store, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: Pages = {"/metrics": (TEXT, page(10))}
    with polling(scraper_of(store, {"static": [{"url": serve(pages), "name": "a"}]})) as scraper:
        scraper.scrape_once()
        pages["/metrics"] = (TEXT, page(25))

        def full(*_: object) -> None:
            raise duckdb.IOException("disk full")

        with monkeypatch.context() as patched:
            patched.setattr("exporter.sources.scrape.append_samples", full)
            scraper.scrape_once()
        assert sums(store, "a") == (None, None)
        scraper.scrape_once()
    assert sums(store, "a") == (15, 0)


# ------------------------------------------------------------------------ frozen

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def log_request(store: Store, minutes: float, replica: str | None, model: str | None) -> None:
    moment = (NOW + timedelta(minutes=minutes)).replace(tzinfo=None)
    with store.write() as cursor:
        cursor.execute(
            "INSERT INTO requests BY NAME SELECT ? AS ts, ? AS arrived, 'gw' AS source,"
            " 'ndjson' AS source_format, 0 AS batch, 0 AS position,"
            " 1 AS attempt, ? AS replica, ? AS model,"
            " 1000 AS prompt_tokens, 2.0 AS e2e_seconds, 'ok' AS status, 'unknown' AS outcome,"
            " 'assumed' AS prompt_basis",
            [moment, moment, replica, model],
        )


def still(store: Store, replicas: set[str], models: set[str], alone: bool) -> bool:
    """Whether the log shows traffic in the ten minutes the counters stood still."""
    state = TargetState(equal_since=NOW.timestamp(), seen_unix=NOW.timestamp() + 600)
    return served_meanwhile(store.cursor(), state, replicas, models, alone, 60.0)


@pytest.mark.parametrize(
    ("minutes", "replica", "model", "frozen"),
    [
        pytest.param(3, "a", "m", True, id="named"),
        pytest.param(3, "b", "m", False, id="another-replica"),
        pytest.param(-1, "a", "m", False, id="before"),
        pytest.param(9.5, "a", "m", False, id="may-be-under-way"),
        pytest.param(3, None, "m", True, id="unnamed-of-its-model"),
        pytest.param(3, None, "hosted", False, id="unnamed-of-another-model"),
    ],
)
def test_t18_the_log_shows_traffic_the_counters_do_not(
    store: Store, minutes: float, replica: str | None, model: str, frozen: bool
) -> None:
    assert not still(store, {"a"}, {"m"}, alone=False)
    log_request(store, minutes, replica, model)
    assert still(store, {"a"}, {"m"}, alone=False) is frozen


def test_t18_unnamed_requests_another_replica_counted_prove_nothing(store: Store) -> None:
    log_request(store, 3, None, "m")
    with store.write() as cursor:
        cursor.execute(
            "INSERT INTO engine_samples BY NAME SELECT 'b' AS target, 'b' AS replica,"
            " 'vllm' AS engine, 'm' AS model, 'unified' AS role, ? AS ts, false AS reset,"
            " false AS gap, 1000 AS prompt_tokens",
            [(NOW + timedelta(minutes=4)).replace(tzinfo=None)],
        )
    assert not still(store, {"a"}, {"m"}, alone=False)


def test_t18_an_engine_without_a_model_name_must_be_the_only_one(store: Store) -> None:
    log_request(store, 3, None, "m")
    assert still(store, {"a"}, set(), alone=True)
    assert not still(store, {"a"}, set(), alone=False)


def test_t18_ten_equal_scrapes_with_running_requests_mark_the_target(
    store: Store, serve: Serve
) -> None:
    pages: Pages = {"/metrics": (TEXT, page(10, running=2))}
    with polling(scraper_of(store, {"static": [{"url": serve(pages), "name": "a"}]})) as scraper:
        marks = []
        for _ in range(10):
            scraper.scrape_once()
            marks.append(load_targets(store.cursor())["a"].frozen)
        assert marks == [False] * 9 + [True]
        pages["/metrics"] = (TEXT, page(11, running=2))
        scraper.scrape_once()
    assert not load_targets(store.cursor())["a"].frozen


# ------------------------------------------------------------------------ timing


@given(name=st.text(max_size=20), now=st.floats(0, 1e6), interval=st.floats(0.1, 600))
def test_each_target_has_its_own_moment_at_most_one_and_a_half_intervals_away(
    name: str, now: float, interval: float
) -> None:
    settings = ScrapeSettings(interval_seconds=interval)
    scraper = Scraper(NoStore(), settings)
    due = scraper._next_due(name, now)
    again = scraper._next_due(name, due)
    assert interval * 0.499 <= due - now <= interval * 1.501
    assert again - due == pytest.approx(interval, rel=1e-3)


class NoStore:
    """For what touches no store."""

    def write(self) -> None:  # type: ignore[override]
        raise AssertionError

    def cursor(self) -> duckdb.DuckDBPyConnection:
        raise AssertionError
