"""A real LiteLLM proxy in front of a real vLLM: log, spans, both pages and the client agree.

The proxy's generic HTTP logger posts to the exporter with its defaults, vLLM exports its spans
to it, and the exporter scrapes both. Run with `make test-engine`. Everything listens on
loopback and is stopped at the end.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine.calls import Answered, plan, send, unasked
from tests.engine.live import MODEL, needs_engine, running_vllm
from tests.engine.proxy import ALONE, Proxy, running_proxy
from tests.running import PROGRAM, answer, free_port, get, running, wait_for

pytestmark = needs_engine

# Both sides send every 5 s; then the other side's rows are awaited (store.join_wait_seconds).
LOG_SECONDS, COUNTED_SECONDS = 90, 120
GATEWAY, SPANS = "litellm", "vllm"


@dataclass(frozen=True)
class Seen:
    """The exporter that watched, and what the client counted itself."""

    exporter: str
    answered: list[Answered]

    def tokens(self, *, team: str | None = None) -> tuple[int, int]:
        """Prompt and cached tokens of all calls, or of a team's."""
        return _tokens(a for a in self.answered if team in (None, _tenant(a)))

    def by_tenant(self) -> dict[str, tuple[int, int]]:
        return {t: self.tokens(team=t) for t in {_tenant(a) for a in self.answered}}


def _tenant(answered: Answered) -> str:
    """Team, else the alias of the key."""
    return answered.call.team or ALONE


def _tokens(answered: Iterable[Answered]) -> tuple[int, int]:
    counted = [(a.prompt_tokens or 0, a.cached_tokens or 0) for a in answered]
    return sum(prompt for prompt, _ in counted), sum(cached for _, cached in counted)


def _config(folder: Path, engine: str, proxy: Proxy, port: int) -> Path:
    targets = [{"url": engine, "replica": "live"}, {"url": proxy.metrics, "name": "litellm"}]
    settings = {
        "store": {"directory": str(folder / "store")},
        "server": {"listen": f"127.0.0.1:{port}"},
        "scrape": {"interval_seconds": 1, "targets": {"static": targets}},
    }
    file = folder / "prefixscope.yml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return file


def _counted(proxy: Proxy) -> list[Answered]:
    """Make all calls. Who was told no usage counts what the same prompt cost just before."""
    told = send(proxy.url, plan())
    last = told[-1]
    quiet = send(proxy.url, unasked())
    assert {a.prompt_tokens for a in quiet} == {None}
    return told + [
        replace(a, prompt_tokens=last.prompt_tokens, cached_tokens=last.cached_tokens)
        for a in quiet
    ]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """vLLM and the proxy are up, then scraped once (the baseline), then called."""
    folder, port = tmp_path_factory.mktemp("live"), free_port()
    exporter, log = f"http://127.0.0.1:{port}", folder / "exporter.log"
    spans = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    otlp = ("--otlp-traces-endpoint", f"{exporter}/v1/traces?source={SPANS}")
    intake = f"{exporter}/v1/requests?source={GATEWAY}"
    with (
        running_vllm(folder, *otlp, **spans) as engine,
        running_proxy(folder, engine, intake) as proxy,
        running(
            [PROGRAM, "serve", "--config", str(_config(folder, engine, proxy, port))], log
        ) as process,
    ):
        wait_for("first scrape", lambda: _is_ready(exporter), 60, process, log)
        answered = _counted(proxy)
        wait_for(
            "both rows of every call", lambda: _arrived(exporter, len(answered)),
            LOG_SECONDS, process, log,
        )  # fmt: skip
        seen = Seen(exporter, answered)
        wait_for(
            "counters", lambda: _of_tenants(seen, "prompt_tokens") >= seen.tokens()[0],
            COUNTED_SECONDS, process, log,
        )  # fmt: skip
        yield seen


def _is_ready(exporter: str) -> bool:
    """Both pages were read: what comes is an increase."""
    return [row["up"] for row in answer(exporter, "replicas")] == [True, True]


def _arrived(exporter: str, calls: int) -> bool:
    rows = Counter({row["source"]: row["rows"] for row in answer(exporter, "joins")})
    prompts = answer(exporter, "engine_hit_ratio")[0]["prompt_tokens"]
    logged = answer(exporter, "hit_ratio")[0]["prompt_tokens"]
    return rows[GATEWAY] >= calls <= rows[SPANS] and prompts == logged


def _total(exporter: str, name: str, label: str = "") -> float:
    lines = get(f"{exporter}/metrics").decode().splitlines()
    own = [line for line in lines if line.startswith(f"prefixcache_{name}_total{{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in own if label in line)


def _of_tenants(seen: Seen, name: str) -> float:
    """Of all tenants. A row of the engine that was counted before it was joined has none."""
    return sum(_total(seen.exporter, name, f'tenant="{tenant}"') for tenant in seen.by_tenant())


def test_calls_shared_prefixes_streamed_and_not(seen: Seen) -> None:
    prompt_tokens, cached_tokens = seen.tokens()
    assert 0 < cached_tokens < prompt_tokens
    streamed = Counter(a.call.streams for a in seen.answered)
    assert len(seen.answered) == 41
    assert min(streamed[True], streamed[False]) >= 15
    assert len({a.id for a in seen.answered}) == 41


def test_every_call_is_one_joined_request(seen: Seen) -> None:
    calls = len(seen.answered)
    joins = {row["source"]: row for row in answer(seen.exporter, "joins")}
    assert set(joins) == {GATEWAY, SPANS}
    assert (joins[GATEWAY]["side"], joins[SPANS]["side"]) == ("gateway", "engine")
    for row in joins.values():
        assert (row["rows"], row["joined"], row["unmatched_ratio"]) == (calls, calls, 0)
    (row,) = answer(seen.exporter, "hit_ratio")
    assert (row["requests"], row["reported_requests"]) == (calls, calls)


def test_log_agrees_with_the_client(seen: Seen) -> None:
    (row,) = answer(seen.exporter, "hit_ratio")
    assert (row["prompt_tokens"], row["cached_tokens"]) == seen.tokens()
    assert row["coverage_ratio"] == 1
    assert (row["output_tokens"], row["ineligible_requests"]) == (8 * len(seen.answered), 0)


def test_tenants_agree_with_the_client(seen: Seen) -> None:
    rows = {row["tenant"]: row for row in answer(seen.exporter, "hit_ratio?by=tenant")}
    found = {name: (row["prompt_tokens"], row["cached_tokens"]) for name, row in rows.items()}
    assert found == seen.by_tenant()
    assert set(found) == {"acme", "birch", ALONE}


def test_the_gateway_knows_whose_and_the_engine_where(seen: Seen) -> None:
    def values(dimension: str) -> list[str]:
        return [row[dimension] for row in answer(seen.exporter, f"hit_ratio?by={dimension}")]

    assert sorted(values("template")) == ["billing", "support"]
    assert values("route") == ["assistant"]
    # The proxy writes its provider before the name, the engine does not.
    assert values("model") == [MODEL]
    (engine,) = answer(seen.exporter, "engine_hit_ratio?by=model")
    assert engine["model"] == MODEL
    assert len(values("replica")) == 1


def test_engine_counters_agree_with_the_client(seen: Seen) -> None:
    (row,) = answer(seen.exporter, "engine_hit_ratio?by=replica")
    assert row["replica"] == "live"
    assert (row["prompt_tokens"], row["cached_tokens"]) == seen.tokens()
    assert row["resets"] == 0


def test_the_proxys_own_page_agrees_with_the_client(seen: Seen) -> None:
    """The page counts cached tokens above 0 only. So what a caller asked in the intervals before
    its first reuse is unreported there; all else agrees."""
    (row,) = answer(seen.exporter, "observed_hit_ratio?observer=gateway")
    assert row["engine"] == "litellm"
    assert (row["asked"] + row["unreported"], row["hits"]) == seen.tokens()
    rows = answer(seen.exporter, "observed_hit_ratio?observer=gateway&by=tenant")
    found = {row["tenant"]: (row["asked"] + row["unreported"], row["hits"]) for row in rows}
    found.pop("", None)  # intervals in which nobody called
    assert found == seen.by_tenant()
    missed = sum(a.prompt_tokens or 0 for a in seen.answered if not a.cached_tokens)
    assert row["unreported"] <= missed


def test_time_to_first_token_is_of_streams_only(seen: Seen) -> None:
    """A call in one piece has the gateway's end as first token, which is none: there the
    engine's own time stands."""
    requests: Counter[str] = Counter()
    for row in answer(seen.exporter, "ttft_by_outcome"):
        requests[row["ttft_point"]] += row["requests"]
    streamed = Counter(a.call.streams for a in seen.answered)
    assert requests == {"gateway": streamed[True], "engine_arrival": streamed[False]}


def test_metrics_count_each_call_once(seen: Seen) -> None:
    counted = [_of_tenants(seen, name) for name in ("prompt_tokens", "cached_tokens", "requests")]
    assert counted == [*seen.tokens(), len(seen.answered)]
    names = ("engine_prompt_tokens", "engine_cached_tokens")
    assert tuple(_total(seen.exporter, name) for name in names) == seen.tokens()


def test_nothing_was_set_aside(seen: Seen) -> None:
    health: dict[str, Any] = {r["source"]: r for r in answer(seen.exporter, "ingest_health")}
    assert health[GATEWAY]["accepted"] == len(seen.answered)
    assert {name: row["rejected"] for name, row in health.items()} == {GATEWAY: 0, SPANS: 0}
