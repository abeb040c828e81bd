"""The files of a short demo, read back with nothing but json and prometheus-client."""

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.errors import PrefixscopeError
from prefixscope.demo import DemoFiles, write_demo

END = datetime(2026, 11, 5, 10, 0, tzinfo=UTC)
REQUESTS_PER_DAY = 8_571  # as in the whole demo: 300,000 in 35 days
Row = dict[str, Any]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    directory = tmp_path_factory.mktemp("demo") / "three-days"
    return write_demo(directory, end=END, days=3, requests=3 * REQUESTS_PER_DAY)


@pytest.fixture(scope="module")
def rows(demo: DemoFiles) -> list[Row]:
    return [
        json.loads(line) | {"source": source}
        for source, paths in demo.logs.items()
        for path in paths
        for line in gzip.decompress(path.read_bytes()).decode().splitlines()
    ]


def start_unix(row: Row) -> float:
    return datetime.fromisoformat(row["ts"]).timestamp()


def end_unix(row: Row) -> float:
    return start_unix(row) + float(row["e2e_seconds"])


def ratio(rows: list[Row]) -> float:
    """The token hit ratio of rows that report."""
    reported = [row for row in rows if "cached_tokens" in row]
    assert reported
    cached, prompt = (
        sum(row[name] for row in reported) for name in ("cached_tokens", "prompt_tokens")
    )
    return float(cached / prompt)


class Pages:
    """The scraped pages of one replica: times and counters, in order."""

    def __init__(self, index: Path) -> None:
        entries = [json.loads(line) for line in index.read_text().splitlines()]
        self.down = [entry["scraped_unix"] for entry in entries if entry["file"] is None]
        self.times = [entry["scraped_unix"] for entry in entries if entry["file"]]
        self.pages = [
            self._read(index.parent / entry["file"]) for entry in entries if entry["file"]
        ]

    @staticmethod
    def _read(path: Path) -> dict[str, float]:
        page: dict[str, float] = {}
        for family in text_string_to_metric_families(path.read_text()):
            for sample in family.samples:
                name = sample.name.removeprefix("vllm:")
                key = name + sample.labels.get("le", "")
                page[key] = page.get(key, 0) + sample.value
                if name == "cache_config_info":
                    page["num_gpu_blocks"] = float(sample.labels["num_gpu_blocks"])
        return page

    def increase(self, name: str) -> float:
        """What a counter rose by in all, over restarts."""
        total = 0.0
        for before, after in zip(self.pages, self.pages[1:], strict=False):
            same = before["process_start_time_seconds"] == after["process_start_time_seconds"]
            total += after[name] - (before[name] if same else 0)
        return total


@pytest.fixture(scope="module")
def pages(demo: DemoFiles) -> dict[str, Pages]:
    return {replica: Pages(index) for replica, index in demo.pages.items()}


def test_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    def digests(name: str, seed: int) -> dict[str, str]:
        directory = tmp_path / name
        write_demo(directory, end=END, days=1, requests=300, seed=seed)
        return {
            str(path.relative_to(directory)): sha256(path.read_bytes()).hexdigest()
            for path in directory.rglob("*")
            if path.is_file()
        }

    first = digests("first", 1)
    assert first == digests("again", 1)
    assert first != digests("other", 2)


def test_rows_add_up_to_the_facts(demo: DemoFiles, rows: list[Row]) -> None:
    for key, facts in (
        ("route", demo.facts.by_route),
        ("template", demo.facts.by_template),
        ("replica", demo.facts.by_replica),
        ("source", demo.facts.by_source),
    ):
        sums: dict[str, list[int]] = defaultdict(lambda: [0] * 6)
        for row in rows:
            reported = "cached_tokens" in row
            prompt_tokens = row.get("prompt_tokens", 0)
            mine = sums[row.get(key, "")]
            mine[0] += 1
            mine[1] += reported
            mine[2] += prompt_tokens
            mine[3] += prompt_tokens * reported
            mine[4] += row.get("cached_tokens", 0)
            mine[5] += row.get("output_tokens", 0)
        assert sums == {name: list(vars(fact).values()) for name, fact in facts.items()}
    assert demo.facts.total.requests == len(rows)


def test_pages_rise_by_what_the_log_holds_to_the_token(
    demo: DemoFiles, rows: list[Row], pages: dict[str, Pages]
) -> None:
    for replica, its_pages in pages.items():
        own = [row for row in rows if row.get("replica") == replica]
        assert its_pages.increase("prompt_tokens_total") == sum(r["prompt_tokens"] for r in own)
        assert its_pages.increase("generation_tokens_total") == sum(r["output_tokens"] for r in own)
        assert its_pages.increase("request_success_total") == len(own)
        assert its_pages.increase("time_to_first_token_seconds_count") == len(own)
        cached = its_pages.increase("prompt_tokens_cached_total")
        assert cached == its_pages.increase("prefix_cache_hits_total")
        assert cached == demo.facts.engine[replica].cached_tokens
        # The engine counts what the gateway without usage details cannot tell.
        assert cached > sum(row.get("cached_tokens", 0) for row in own)


def test_every_page_equals_the_log_up_to_its_scrape(
    rows: list[Row], pages: dict[str, Pages]
) -> None:
    for replica, its_pages in pages.items():
        own = sorted((row for row in rows if row.get("replica") == replica), key=end_unix)
        ends = [end_unix(row) for row in own]
        prompt_tokens = [0, *accumulate(row["prompt_tokens"] for row in own)]
        last_restart = max(page["process_start_time_seconds"] for page in its_pages.pages)
        before_restart = prompt_tokens[bisect_right(ends, last_restart)]
        for time, page in zip(its_pages.times, its_pages.pages, strict=True):
            so_far = prompt_tokens[bisect_right(ends, time)]
            expected = so_far - (before_restart if time > last_restart else 0)
            assert page["prompt_tokens_total"] == expected, (replica, time)


def test_pages_are_possible(pages: dict[str, Pages]) -> None:
    for its_pages in pages.values():
        assert its_pages.times == sorted(set(its_pages.times))
        for page in its_pages.pages:
            assert 0 <= page["kv_cache_usage_perc"] <= 1
            assert page["time_to_first_token_seconds_bucket+Inf"] == page["request_success_total"]
        assert max(page["kv_cache_usage_perc"] for page in its_pages.pages) > 0.5
        last_six_hours = [t for t in its_pages.times if t >= END.timestamp() - 6 * 3_600]
        assert len(last_six_hours) + len(its_pages.down) in (361, 362)  # one before the restart


def test_only_one_replica_restarts_and_its_page_is_away_meanwhile(
    demo: DemoFiles, pages: dict[str, Pages]
) -> None:
    starts = {
        replica: [page["process_start_time_seconds"] for page in its_pages.pages]
        for replica, its_pages in pages.items()
    }
    restart = demo.traffic.story.restart
    assert {replica for replica, values in starts.items() if len(set(values)) > 1} == {"replica-2"}
    first, second = sorted(set(starts["replica-2"]))
    assert demo.start.timestamp() - 600 < first <= demo.start.timestamp()
    assert second == restart
    # Processes are told apart by their start.
    assert len({values[0] for values in starts.values()}) == len(starts)
    assert [restart <= time < restart + 45 for time in pages["replica-2"].down] == [True]
    blocks = [page["num_gpu_blocks"] for page in pages["replica-2"].pages]
    assert (blocks[0], blocks[-1]) == (257, 177)


def test_rows_are_possible(rows: list[Row]) -> None:
    for row in rows:
        if row["status"] == "error":
            assert not {"prompt_tokens", "cached_tokens", "replica"} & set(row)
            continue
        assert row["prompt_tokens"] > 0
        assert ("ttft_seconds" in row) == row["stream"]
        if "cached_tokens" in row:
            assert row["cached_tokens"] % 64 == 0
            assert 0 <= row["cached_tokens"] < row["prompt_tokens"]
        if "ttft_seconds" in row:
            known = row.get("queue_seconds", 0) + row.get("prefill_seconds", 0)
            assert known <= row["ttft_seconds"] <= row["e2e_seconds"]


def test_request_attempts_are_unique_and_errors_are_tried_again(
    demo: DemoFiles, rows: list[Row]
) -> None:
    keys = {(row["source"], row["request_id"], row["attempt"]) for row in rows}
    assert len(keys) == len(rows)
    failed = [row for row in rows if row["status"] == "error"]
    assert len(failed) > 50
    for row in failed:
        retried = (row["source"], row["request_id"], row["attempt"] + 1) in keys
        assert retried or end_unix(row) > END.timestamp() - 600


def test_the_fleet_is_as_described(rows: list[Row]) -> None:
    def values(name: str) -> set[str]:
        return {row[name] for row in rows if name in row}

    assert len(rows) == pytest.approx(3 * REQUESTS_PER_DAY, rel=0.15)
    assert (len(values("route")), len(values("template"))) == (6, 10)
    assert values("replica") == {f"replica-{number}" for number in range(4)}
    assert len(values("tenant")) == 40
    assert 'O\'Hara "R&D" \\ labs' in values("tenant")
    assert values("status") == {"ok", "error", "cancelled"}
    assert {row["stream"] for row in rows} == {True, False}
    prompt_tokens = sum(row.get("prompt_tokens", 0) for row in rows)
    reported = sum(row["prompt_tokens"] for row in rows if "cached_tokens" in row)
    assert 0.95 < reported / prompt_tokens < 0.99


def test_clock_in_front_is_never_cached(rows: list[Row]) -> None:
    triage = [row for row in rows if row["template"] == "triage" and "cached_tokens" in row]
    assert len(triage) > 500
    assert {row["cached_tokens"] for row in triage} == {0}


def test_hit_ratio_falls_in_the_peak_under_memory_pressure(rows: list[Row]) -> None:
    chat = [row for row in rows if row["template"] == "assistant"]

    def between(first_hour: float, last_hour: float) -> list[Row]:
        # The fleet's clock shows 17:30 at the end.
        midnight = (END - timedelta(hours=17.5)).timestamp()
        hours = [((start_unix(row) - midnight) / 3_600 % 24, row) for row in chat]
        return [row for hour, row in hours if first_hour <= hour < last_hour]

    assert ratio(between(19, 21)) < ratio(between(0, 5)) - 0.1


def test_hit_ratio_falls_after_the_version_change(demo: DemoFiles, rows: list[Row]) -> None:
    desk = [row for row in rows if row["template"] == "support-desk"]
    old = [row for row in desk if row["template_version"] == "v7"]
    new = [row for row in desk if row["template_version"] == "v8"]
    assert min(map(start_unix, new)) >= demo.traffic.story.version_change
    assert ratio(new) < ratio(old) - 0.1
    first_turns = [row for row in new if row["turn"] == 1 and row["status"] != "error"]
    assert {row["cached_tokens"] for row in first_turns} == {0}


def test_the_cache_is_empty_after_the_restart(demo: DemoFiles, rows: list[Row]) -> None:
    restart = demo.traffic.story.restart
    own = [row for row in rows if row.get("replica") == "replica-2" and start_unix(row) >= restart]
    first = next(row for row in sorted(own, key=start_unix) if "cached_tokens" in row)
    assert first["cached_tokens"] == 0


def test_prefill_time_is_linear_in_computed_tokens(rows: list[Row]) -> None:
    own = [row for row in rows if row.get("replica") == "replica-0" and "prefill_seconds" in row]
    computed = [row["prompt_tokens"] - row["cached_tokens"] for row in own]
    seconds = [row["prefill_seconds"] for row in own]
    mean_tokens, mean_seconds = sum(computed) / len(own), sum(seconds) / len(own)
    covariance = sum(
        (c - mean_tokens) * (s - mean_seconds) for c, s in zip(computed, seconds, strict=True)
    )
    variance = sum((c - mean_tokens) ** 2 for c in computed)
    assert variance / covariance == pytest.approx(1_900, rel=0.02)  # tokens per second


def test_an_earlier_demo_is_not_overwritten(demo: DemoFiles) -> None:
    with pytest.raises(PrefixscopeError, match="already holds demo files"):
        write_demo(demo.directory, end=END)


def test_impossible_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="time zone"):
        write_demo(tmp_path, end=END.replace(tzinfo=None))
    with pytest.raises(ValueError, match="a day and a request"):
        write_demo(tmp_path, end=END, days=0)


def test_label_says_that_it_is_synthetic_and_facts_are_written(demo: DemoFiles) -> None:
    label = json.loads((demo.directory / "demo.json").read_text())
    assert "invented" in label["synthetic"]
    assert label["end"] == "2026-11-05T10:00:00.000Z"
    facts = json.loads((demo.directory / "facts.json").read_text())
    assert facts["total"]["requests"] == demo.facts.total.requests
    assert facts["engine"]["replica-1"] == vars(demo.facts.engine["replica-1"])


def test_end_is_taken_down_to_its_minute(tmp_path: Path) -> None:
    end = datetime(2026, 11, 5, 11, 30, 59, 999_999, tzinfo=timezone(timedelta(hours=1)))
    files = write_demo(tmp_path, end=end, days=1, requests=100)
    assert files.end == datetime(2026, 11, 5, 10, 30, tzinfo=UTC)
    assert files.start == datetime(2026, 11, 4, 10, 30, tzinfo=UTC)
