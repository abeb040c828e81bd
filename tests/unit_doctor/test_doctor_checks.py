"""Facts in, findings out: every check by a table, at its borders too."""

from pathlib import Path

import pytest

from prefixscope.doctor.facts import (
    Facts,
    JoinFacts,
    LogFacts,
    RejectFacts,
    RowFacts,
    TargetFacts,
    Window,
)
from prefixscope.doctor.findings import CHECKS, Finding, Severity, exit_status
from prefixscope.doctor.together import examine, level_of

OK, NOTE, WARNING, FAULT = Severity.OK, Severity.NOTE, Severity.WARNING, Severity.FAULT
DETAILS = "--enable-prompt-tokens-details"


def target(**given: object) -> TargetFacts:
    """A vLLM in order, whose answers were probed and name their cached tokens."""
    usual: dict[str, object] = {
        "name": "v", "url": "http://v:8000/metrics", "engine": "vllm", "title": "vLLM",
        "models": ("m",), "prompt_tokens": 1000, "cached_tokens": 600, "caching_enabled": True,
        "names_cached_tokens": True, "replicas": ("v",),
    }  # fmt: skip
    return TargetFacts(**{**usual, **given})  # type: ignore[arg-type]


def rows(**given: object) -> RowFacts:
    """A hundred rows of model m that all report, proven inclusive."""
    usual: dict[str, object] = {
        "model": "m", "rows": 100, "eligible_rows": 100, "reported_rows": 100, "cached_rows": 50,
        "inclusive_rows": 100, "median_prompt_tokens": 800.0, "median_ttft_seconds": 0.2,
    }  # fmt: skip
    return RowFacts(**{**usual, **given})  # type: ignore[arg-type]


def log(*newest: RowFacts, **given: object) -> LogFacts:
    usual: dict[str, object] = {
        "source": "gateway", "source_format": "litellm", "accepted": 100, "silent_seconds": 5.0,
        "newest": newest or (rows(),),
    }  # fmt: skip
    return LogFacts(**{**usual, **given})  # type: ignore[arg-type]


def found(facts: Facts) -> dict[str, Severity]:
    """The worst of every kind beyond ok."""
    kinds: dict[str, Severity] = {}
    for finding in examine(facts):
        if finding.severity > OK:
            kinds[finding.check] = max(kinds.get(finding.check, OK), finding.severity)
    return kinds


def only(facts: Facts, check: str) -> Finding:
    """The one finding of a kind."""
    (finding,) = [f for f in examine(facts) if f.check == check and f.severity > OK]
    return finding


def test_everything_in_order_says_nothing() -> None:
    facts = Facts((target(),), (log(),), window=Window(1000, 1000, 50), asked="the exporter")
    assert found(facts) == {}
    assert exit_status(examine(facts), strict=True) == 0


TARGETS = {
    "down": (target(error="connection refused: is the engine running on this port?"),
             {"target-reachable": FAULT}),
    "not yet asked": (target(error=None, engine=None, prompt_tokens=None),
                      {"target-reachable": NOTE}),
    "reached by the exporter only": (target(error="timed out", up_for_exporter=True),
                                     {"target-reachable": NOTE}),
    "reached from here only": (target(up_for_exporter=False, exporter_says="timed out"),
                               {"target-reachable": FAULT}),
    "series missing": (target(missing=("vllm:x: start without --disable-log-stats",)),
                       {"metrics-missing": WARNING}),
    "odd page": (target(notices=("copies are left out",)), {"page-notice": NOTE}),
    "caching off": (target(caching_enabled=False), {"caching-off": WARNING}),
    "caching unknown": (target(caching_enabled=None), {}),
    "frozen": (target(frozen=True), {"counters-frozen": FAULT}),
    "still for a moment": (target(stood_still_seconds=1.0, running_requests=2),
                           {"counters-frozen": NOTE}),
    "still and idle": (target(stood_still_seconds=None, running_requests=0), {}),
    "clock 5 s ahead": (target(ahead_seconds=5.0), {}),
    "clock 6 s behind": (target(ahead_seconds=-6.0), {"clock-skew": NOTE}),
    "clock an hour ahead": (target(ahead_seconds=3600.0), {"clock-skew": WARNING}),
    "gateway page open": (target(engine="litellm", observer="gateway"), {"metrics-open": NOTE}),
    "gateway page on loopback": (
        target(engine="litellm", observer="gateway", url="http://127.0.0.1:4000/metrics/"), {}),
    "details off": (target(names_cached_tokens=False), {"usage-details": WARNING}),
    "details not known": (target(names_cached_tokens=None), {"usage-details": NOTE}),
    "probe refused": (target(names_cached_tokens=None, probe_error="HTTP 401"),
                      {"usage-details": NOTE}),
    "decode replica": (target(role="decode", names_cached_tokens=None), {}),
    "llama.cpp has no such flag": (target(engine="llamacpp", names_cached_tokens=None), {}),
    "sglang without cache report": (
        target(engine="sglang", names_cached_tokens=None, settings={"enable_cache_report": False}),
        {"usage-details": WARNING}),
    "sglang with it": (
        target(engine="sglang", names_cached_tokens=None, settings={"enable_cache_report": True}),
        {}),
    "sglang radix cache off": (
        target(engine="sglang", caching_enabled=None, settings={"disable_radix_cache": True}),
        {"caching-off": WARNING}),
    "sglang exports prompts": (
        target(engine="sglang", settings={"export_metrics_to_file": True, "log_requests_level": 2}),
        {"prompts-leak": WARNING}),
    "sglang exports none": (
        target(engine="sglang", settings={"export_metrics_to_file": True, "log_requests_level": 1}),
        {}),
    "sglang would, but writes nothing": (
        target(engine="sglang", settings={"export_metrics_to_file": False, "log_requests": False,
                                          "log_requests_level": 3}), {}),
    "sglang publishes events": (
        target(engine="sglang", settings={"kv_events_config": '{"publisher": "zmq"}'}),
        {"kv-events": NOTE}),
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_target(name: str) -> None:
    facts, expected = TARGETS[name]
    assert found(Facts((facts,))) == expected


LOGS = {
    "unreadable": (log(error="x.jsonl: there is no such file yet"), {"log-readable": FAULT}),
    "empty": (LogFacts("gateway", path="x.jsonl"), {"log-readable": NOTE}),
    "silent for two days": (log(silent_seconds=2 * 86400.0), {"log-silent": NOTE}),
    "one in a thousand rejected": (log(accepted=999, rejected=1), {"rows-rejected": NOTE}),
    "one in a hundred rejected": (log(accepted=99, rejected=1), {"rows-rejected": WARNING}),
    "all rejected": (LogFacts("gateway", rejected=7), {"rows-rejected": FAULT}),
    "basis assumed": (log(rows(inclusive_rows=0, assumed_rows=100)), {"prompt-basis": NOTE}),
    "basis unknown": (log(rows(inclusive_rows=80, unknown_basis_rows=20)),
                      {"prompt-basis": WARNING}),
    "both bases": (log(rows(inclusive_rows=50, exclusive_rows=50)), {"prompt-basis": NOTE}),
    "all exclusive": (log(rows(inclusive_rows=0, exclusive_rows=100)), {}),
    "more cached than prompt": (log(flags={"cached_impossible": 1}), {"counts-odd": WARNING}),
    "capped": (log(flags={"cached_capped": 50}), {"counts-odd": NOTE}),
    "conflicts": (log(conflicting=5), {"duplicates": WARNING}),
    "some repeats": (log(duplicate=10), {}),
    "many repeats": (log(duplicate=100), {"duplicates": NOTE}),
    "no ids": (log(flags={"no_id": 2}), {"duplicates": WARNING}),
    # 200 ms read as seconds is 200 s, 2,000 ms is 2,000 s; 0.2 s read as ms is 0.0002 s.
    "milliseconds as seconds": (log(rows(median_ttft_seconds=2000.0)), {"units": WARNING}),
    "seconds as milliseconds": (log(rows(median_ttft_seconds=0.0002)), {"units": WARNING}),
    "slow": (log(rows(median_ttft_seconds=300.0)), {}),
    "no first token": (log(rows(median_ttft_seconds=None)), {}),
    "first token after the end": (log(flags={"ttft_equals_end": 11}), {"units": WARNING}),
    "first token at the end at times": (log(flags={"ttft_equals_end": 10}), {}),
    "characters": (log(rows(median_prompt_tokens=3e6)), {"units": WARNING}),
    "rows ahead": (log(rows(ahead_rows=3, max_ahead_seconds=3600.0)), {"log-clock": WARNING}),
    "no times": (log(flags={"no_time": 100}), {"log-clock": NOTE}),
    "nine in ten report": (log(rows(reported_rows=90)), {}),
    "fewer report": (log(rows(reported_rows=89)), {"coverage": WARNING}),
    "none report": (log(rows(reported_rows=0)), {"usage-details": WARNING}),
    "a format that cannot": (log(rows(reported_rows=0), can_report=False), {"coverage": NOTE}),
    "no usage": (log(rows(eligible_rows=80, reported_rows=80, without_usage_rows=20)),
                 {"coverage": WARNING}),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_log(name: str) -> None:
    facts, expected = LOGS[name]
    assert found(Facts(logs=(facts,))) == expected


def test_t05_unreported_rows_name_the_flag_of_the_engine_behind_them() -> None:
    silent = log(rows(reported_rows=0))
    vllm = target(names_cached_tokens=None)
    said = only(Facts((vllm,), (silent,)), "usage-details")
    assert DETAILS in said.fix
    assert "--enable-cache-report" not in said.fix
    assert "600 cached of 1,000 prompt tokens" in said.says
    sglang = target(engine="sglang", names_cached_tokens=None)
    assert only(Facts((sglang,), (silent,)), "usage-details").fix == (
        "start SGLang with --enable-cache-report"
    )
    both = only(Facts((vllm, replace_models(sglang)), (log(rows(model="", reported_rows=0)),)),
                "usage-details")  # fmt: skip
    assert DETAILS in both.fix
    assert "--enable-cache-report" in both.fix


def replace_models(facts: TargetFacts) -> TargetFacts:
    return target(name="s", engine=facts.engine, models=("n",), names_cached_tokens=None)


def test_a_model_that_reports_does_not_hide_one_that_does_not() -> None:
    engines = (target(names_cached_tokens=None),
               target(name="w", models=("n",), names_cached_tokens=None))  # fmt: skip
    mixed = log(rows(), rows(model="n", reported_rows=0))
    assert only(Facts(engines, (mixed,)), "usage-details").where == "gateway, model n"


def test_a_count_that_the_engine_names_is_lost_on_the_way() -> None:
    facts = Facts((target(),), (log(rows(reported_rows=0)),))
    assert found(facts) == {"coverage": WARNING}
    assert "lost on the way" in only(facts, "coverage").says


def test_a_log_that_reports_answers_for_the_engine() -> None:
    assert found(Facts((target(names_cached_tokens=None),), (log(),))) == {}


def test_a_router_that_could_not_look_up_names_scale_out() -> None:
    router = TargetFacts("r", engine="vllm_router", observer="router", title="vllm-router",
                         looked_up_requests=0, skipped_requests=48)  # fmt: skip
    said = only(Facts((router, target())), "scale-out")
    assert said.says.startswith("48 of 48 requests could not be looked up")
    assert said.fix == "start every vLLM behind it with --enable-scale-out"
    asked = TargetFacts("r", engine="vllm_router", observer="router", looked_up_requests=48)
    assert found(Facts((asked, target(renders_prompts=True)))) == {}
    assert found(Facts((asked, target(renders_prompts=False)))) == {"scale-out": WARNING}
    assert found(Facts((target(renders_prompts=False),))) == {}, "no router, no need"


def test_joins_matter_only_where_both_sides_write() -> None:
    gateway, engine = JoinFacts("g", "gateway", 100, 60), JoinFacts("e", "engine", 50, 5)
    assert found(Facts((target(),), (log(),), (gateway,))) == {}
    assert only(Facts((target(),), (log(),), (gateway, engine)), "joins").where == "g"


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window(1100, 1000, 50), {}),
        (Window(1101, 1000, 50), {"log-and-engine": WARNING}),
        (Window(900, 1000, 50), {}),
        (Window(899, 1000, 50), {"log-and-engine": NOTE}),
        (Window(1101, 1000, 49), {}),
        (Window(5, 0, 50), {}),
    ],
)
def test_log_and_engine_tokens(window: Window, expected: dict[str, Severity]) -> None:
    assert found(Facts((target(),), (log(),), window=window)) == expected


def test_a_log_of_one_of_two_replicas_is_a_sample() -> None:
    engines = (target(), target(name="w", replicas=("w",)))
    said = only(Facts(engines, (log(rows(replicas=("v",))),)), "log-and-engine")
    assert "1 of 2 replicas" in said.says
    assert said.fix.endswith(": w")
    assert found(Facts(engines, (log(rows(replicas=("v", "w"))),))) == {}


def test_rows_and_pages_that_name_replicas_differently_are_told() -> None:
    """Their resets could never be the cause of what missed: it would look evicted."""
    engines = (target(name="vllm-18000", replicas=("vllm-18000",)),)
    said = only(Facts(engines, (log(rows(replicas=("vllm-0", "vllm-1"))),)), "log-and-engine")
    assert said.severity is NOTE
    assert said.says.startswith("rows name 2 replicas (vllm-0, vllm-1), and no metric page")
    assert said.fix == (
        "name both alike: replica: vllm-0 at its target under scrape.targets, or "
        "PREFIXSCOPE_TAP_REPLICA=vllm-18000 for its tap"
    )
    assert found(Facts(engines, (log(rows()),))) == {}
    ranks = (target(name="west", replicas=("west/0", "west/1")),)
    assert found(Facts(ranks, (log(rows(replicas=("west",))),))) == {}


def test_wiring() -> None:
    assert found(Facts()) == {"exporter": FAULT}
    assert found(Facts((target(),), exporter_error="no exporter answers")) == {"exporter": NOTE}
    assert found(Facts(list_errors={"file_sd x": "no such file"})) == {"lists": FAULT}


def test_a_prometheus_in_place_of_pages() -> None:
    assert found(Facts(sources={"http://p": 2})) == {}
    assert found(Facts(sources={"http://p": 0})) == {"prometheus": FAULT}
    said = only(Facts(sources={"http://p": "connection refused"}), "prometheus")
    assert (said.where, said.says) == ("http://p", "connection refused")


LEVELS = {
    "a Prometheus": (Facts(sources={"http://p": 2}), 0, "row per request"),
    "a Prometheus and rows": (Facts(logs=(log(),), sources={"p": 2}), 1, "docs/kv-events.md"),
    "a silent Prometheus": (Facts(sources={"http://p": "refused"}), None, "prefixscope init"),
    "nothing": (Facts(), None, "prefixscope init"),
    "unreachable": (Facts((target(error="refused"),)), None, "make the metric page of v answer"),
    "engine": (Facts((target(),)), 0, "row per request"),
    "rows that do not report": (Facts((target(),), (log(rows(reported_rows=0)),)), 0,
                                "usage-details"),
    "rows": (Facts((target(),), (log(),)), 1, "start the engines with --kv-events-config '{"),
    "rows alone": (Facts(logs=(log(),)), 1, "scrape the engines"),
    "memory without rows": (Facts((target(tells_cached_memory=True),)), 0, "row per request"),
    "rows and memory": (Facts((target(tells_cached_memory=True),), (log(),)), 2, "tap"),
    "old sglang": (Facts((target(engine="sglang"),), (log(),)), 1, "0.5.11"),
    "chains": (Facts((target(),), (log(rows(chained_rows=1)),)), 3, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", LEVELS)
def test_level_and_next_step(name: str) -> None:
    facts, number, step = LEVELS[name]
    level = level_of(facts)
    assert level.number == number
    assert step in level.next_step
    assert examine(facts)[-1].check == "level"


def test_exit_status() -> None:
    def of(severity: Severity) -> list[Finding]:
        return [Finding("units", severity, "x", "y")]

    assert [exit_status(of(s), strict=False) for s in Severity] == [0, 0, 0, 1]
    assert [exit_status(of(s), strict=True) for s in Severity] == [0, 0, 1, 1]
    assert exit_status([], strict=True) == 0


def test_an_unknown_kind_of_finding_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="not among CHECKS"):
        Finding("nonsense", OK, "x", "y")


def test_rejects_are_shown_by_example() -> None:
    rejects = (RejectFacts("invalid_json", 7, "line cut", 409),)
    said = only(Facts(logs=(log(accepted=1, rejected=7, rejects=rejects),)), "rows-rejected").says
    assert said == (
        "7 rows (87.5%) could not be read: 7 invalid_json (the latest at position 409: line cut)"
    )


def test_the_page_explains_every_kind() -> None:

    text = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert [check for check in CHECKS if f"| `{check}` |" not in text] == []
