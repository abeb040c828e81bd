"""LiteLLM's proxy, a Mooncake master and TGI: absent is unknown, objects are objects."""

from pathlib import Path

import pytest

from exporter.sources.engines.reading import UnknownPage, read_page
from exporter.sources.pages import ingest_pages
from exporter.store.store import Store
from tests.unit_engines.conftest import Through, write_pages

PAGES = Path(__file__).parent / "pages"


def pages_of(program: str, era: str) -> list[bytes]:
    return [(PAGES / program / f"{era}{end}.txt").read_bytes() for end in ("", ".2")]


def test_t5_a_team_without_a_cached_series_is_unknown_not_zero(through: Through) -> None:
    proxy = {"proxy": pages_of("litellm", "1.108.7")}
    rows = {r["tenant"]: r for r in through(proxy, "observed_hit_ratio", by="tenant")}
    # "search": 5 prompts of 1000 tokens, four of them with 800 cached; "support": 2, not reported;
    # a key without a team: 1, with 800 cached
    assert (rows["search"]["hits"], rows["search"]["asked"]) == (3200, 5000)
    assert rows["search"]["hit_ratio"] == pytest.approx(0.64)
    assert (rows["support"]["hits"], rows["support"]["hit_ratio"]) == (None, None)
    assert rows["support"]["unreported"] == 2000
    assert (rows["alone-key"]["hits"], rows["alone-key"]["asked"]) == (800, 1000)
    assert "None" not in rows


def test_t5_what_is_not_reported_does_not_dilute_the_proxys_ratio(through: Through) -> None:
    (row,) = through({"proxy": pages_of("litellm", "1.108.7")}, "observed_hit_ratio")
    assert (row["hits"], row["asked"], row["unreported"]) == (4000, 6000, 2000)
    assert row["hit_ratio"] == pytest.approx(2 / 3)
    assert row["caution"] == "hits not reported for 2000 tokens"
    models = through({"proxy": pages_of("litellm", "1.108.7")}, "observed_hit_ratio", by="model")
    assert [(r["model"], r["hits"], r["asked"]) for r in models] == [
        ("small", 3200, 5000),
        ("small-openai", 800, 1000),
    ]


def test_t39_answers_from_the_response_cache_are_no_prefix_hits(through: Through) -> None:
    # "search" got two answers from the proxy's own cache, whose old usage the page counted again
    proxy = {"proxy": pages_of("litellm", "response-cache-1.108.7")}
    rows = {r["tenant"]: r for r in through(proxy, "observed_hit_ratio", by="tenant")}
    assert "search" not in rows
    assert (rows["support"]["hits"], rows["support"]["asked"]) == (800, 1000)


def test_t49_teams_are_bounded_and_the_totals_stay_right(through: Through) -> None:
    def page(tokens: int) -> str:
        return "".join(
            f'litellm_{name}_metric_total{{model="small",team_alias="team-{team}"}} {amount}\n'
            for team in range(300)
            for name, amount in (("input_tokens", tokens), ("input_cached_tokens", tokens // 2))
        )

    pages = {"proxy": [page(0), page(10)]}
    teams = through(pages, "observed_hit_ratio", by="tenant")
    assert len(teams) <= 101
    assert "other" in {row["tenant"] for row in teams}
    (total,) = through(pages, "observed_hit_ratio")
    assert (total["hits"], total["asked"]) == (300 * 5, 300 * 10)


def test_a_proxy_that_served_nothing_yet_is_known_and_its_first_calls_count(
    through: Through,
) -> None:
    # Its counters have a type line from the start and a series only after the first call.
    fresh = (
        b"# TYPE litellm_input_tokens_metric_total counter\n"
        b"# TYPE litellm_total_users gauge\nlitellm_total_users 0.0\n"
    )
    page = read_page(fresh, "text/plain")
    assert (page.engine.name, page.missing, page.groups) == ("litellm", (), {})
    served = fresh + (
        b'litellm_input_tokens_metric_total{model="m",team="a"} 900\n'
        b'litellm_input_cached_tokens_metric_total{model="m",team="a"} 640\n'
    )
    (row,) = through({"proxy": [fresh, served]}, "observed_hit_ratio")
    assert (row["hits"], row["asked"]) == (640, 900)


def test_a_page_without_the_proxys_counters_is_no_page_of_it() -> None:
    with pytest.raises(UnknownPage):
        read_page(b"# TYPE litellm_total_users gauge\nlitellm_total_users 0.0\n", "text/plain")


def test_a_series_with_a_hidden_label_keeps_its_start_time() -> None:
    labels = b'{model="m",team="a",hashed_api_key="k"}'
    page = read_page(
        b"litellm_input_tokens_metric_total" + labels + b" 900\n"
        b"litellm_input_tokens_metric_created" + labels + b" 1000000030\n",
        "text/plain",
    )
    ((key, reading),) = page.series.items()
    assert "'k'" not in key
    assert reading.start == 1_000_000_030


def test_people_and_keys_of_the_proxy_stay_out_of_the_store(tmp_path: Path) -> None:
    pages = [
        page.replace(b'user_email="None"', b'user_email="ann@example.org"')
        for page in pages_of("litellm", "1.108.7")
    ]
    assert b"ann@example.org" in pages[1]
    write_pages(tmp_path / "pages" / "proxy", pages)
    store = Store.open(tmp_path / "store")
    ingest_pages(store, [tmp_path / "pages"])
    store.cursor().execute("CHECKPOINT")
    store.close()
    for file in (tmp_path / "store").rglob("*"):
        assert not file.is_file() or b"ann@example" not in file.read_bytes(), file


def test_the_proxy_counts_for_itself_and_enters_no_engine_figure(through: Through) -> None:
    (row,) = through({"proxy": pages_of("litellm", "1.108.7")}, "engine_hit_ratio")
    assert (row["prompt_tokens"], row["cached_tokens"]) == (None, None)


def test_mooncake_counts_objects_and_bytes(through: Through, tmp_path: Path) -> None:
    (row,) = through({"master": pages_of("mooncake", "0.3.12")}, "observed_hit_ratio")
    assert (row["hits"], row["asked"], row["hit_ratio"]) == (5, 10, 0.5)
    assert (row["unit"], row["caution"]) == ("objects", "counts objects, not tokens")
    write_pages(tmp_path / "again" / "master", pages_of("mooncake", "0.3.12"))
    store = Store.open(tmp_path / "again-store")
    ingest_pages(store, [tmp_path / "again"])
    found = store.cursor().execute(
        "SELECT evicted['remote/objects'], offload_bytes['load/remote'], "
        "tier_used['remote/bytes'], tier_capacity['remote/bytes'] "
        "FROM engine_samples WHERE since IS NOT NULL"
    )
    assert found.fetchall() == [(3, 4096, 2048, 1 << 30)]
    store.close()


def test_tgi_lives_and_says_that_reuse_is_not_observable(through: Through) -> None:
    pages = pages_of("tgi", "3.3.7")
    (row,) = through({"tgi": pages}, "engine_hit_ratio")
    assert (row["prompt_tokens"], row["cached_tokens"]) == (10_000, None)
    assert (row["reported_prompt_tokens"], row["token_hit_ratio"]) == (None, None)
    page = read_page(pages[1], "text/plain")
    assert page.missing == ()
    assert "not observable" in page.warnings[0]
