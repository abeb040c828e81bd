"""Known traps, as the rules on engines' own metrics meet them: promtool judges, figures by hand."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from tests.unit_alerts.rule_files import FOLDER

PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(
    PROMTOOL is None, reason="no promtool here: apt-get install prometheus"
)
RULES = FOLDER / "engines.rules.yml"
GROUPS = [f"prefixcache_engine{part}" for part in ("_records", "_usual", "_judgements", "")]
RATIO = "round(model:prefixcache_token_hit_ratio:ratio1h, 0.001)"
SUMS = "round(300 * instance_model:prefixcache_prompt_tokens:rate5m, 0.1)"
NO_SERIES: dict[str, float] = {}
Wanted = Mapping[str, float]


def names(instance: str, model: str = "m") -> str:
    return f'job="engines",instance="{instance}",model_name="{model}"'


def model(name: str = "m") -> str:
    return f'{{job="engines",model_name="{name}"}}'


def holds(
    folder: Path,
    series: Mapping[str, str],
    minutes: int,
    expressions: Mapping[str, Wanted],
    silent: Sequence[str] = (),
) -> str:
    """What promtool complains of, '' where each expression gives just these series by then."""
    case = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "group_eval_order": GROUPS,
        "tests": [{
            "interval": "1m",
            "input_series": [{"series": key, "values": text} for key, text in series.items()],
            "promql_expr_test": [
                {
                    "expr": expression,
                    "eval_time": f"{minutes}m",
                    "exp_samples": [{"labels": k, "value": v} for k, v in wanted.items()],
                }
                for expression, wanted in expressions.items()
            ],
            "alert_rule_test": [
                {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": []}
                for alert in silent
            ],
        }],
    }  # fmt: skip
    file = folder / "case.yml"
    file.write_text(yaml.safe_dump(case), encoding="utf-8")
    command = [str(PROMTOOL), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def pair(instance: str, prompt: str, cached: str, engine: str = "0") -> dict[str, str]:
    labels = f'{names(instance)},engine="{engine}"'
    return {
        f"vllm:prompt_tokens_total{{{labels}}}": prompt,
        f"vllm:prompt_tokens_cached_total{{{labels}}}": cached,
    }


def test_t2_the_gauge_of_the_last_batch_is_no_ratio(tmp_path: Path) -> None:
    """Five readings of it are 0.93, 0, 0, 0.91 and 0; the counters say 9300 of 10,000."""
    series = {
        f"sglang:cache_hit_rate{{{names('s')}}}": "0.93 0 0 0.91 0",
        f"sglang:prompt_tokens_total{{{names('s')}}}": "0+2500x4",
        f"sglang:cached_tokens_total{{{names('s')}}}": "0+2325x4",
    }
    assert not holds(tmp_path, series, 4, {RATIO: {model(): 0.93}})


def test_t9_t12_a_ratio_is_of_sums_of_increases_over_all_label_sets(tmp_path: Path) -> None:
    """Two ranks and another engine: 0 of 16 and 1584 of 1600 a minute, and 16 of 32."""
    series = {
        **pair("a", "0+16x20", "0x20", "0"),
        **pair("a", "0+1600x20", "0+1584x20", "1"),
        **pair("b", "0+32x20", "0+16x20"),
    }
    assert not holds(tmp_path, series, 20, {RATIO: {model(): round(1600 / 1648, 3)}})


def test_t11_a_total_since_the_start_is_no_window(tmp_path: Path) -> None:
    """9 of 10 million before, none of 50,000 now."""
    series = pair("a", "10000000+10000x10", "9000000x10")
    assert not holds(
        tmp_path, series, 5, {RATIO: {model(): 0}, SUMS: {f"{{{names('a')}}}": 50_000}}
    )


def test_t13_two_releases_side_by_side_are_one_ratio(tmp_path: Path) -> None:
    """Of one 100 of 200 under the old names, of the other 300 of 400: 400 of 600."""
    series = {
        f"vllm:gpu_prefix_cache_hits_total{{{names('a')}}}": "0+10x10",
        f"vllm:gpu_prefix_cache_queries_total{{{names('a')}}}": "0+20x10",
        f"vllm:prefix_cache_hits_total{{{names('b')}}}": "0+30x10",
        f"vllm:prefix_cache_queries_total{{{names('b')}}}": "0+40x10",
    }
    assert not holds(tmp_path, series, 10, {RATIO: {model(): 0.667}})


def test_t13_a_name_that_nobody_knows_is_missing_and_not_0(tmp_path: Path) -> None:
    series = {
        'up{job="engines",instance="a"}': "1x40",
        f"vllm:num_requests_running{{{names('a')}}}": "3x40",
        f"vllm:prompt_tokens_total{{{names('a')}}}": "0+100x40",
        f"vllm:prompt_tokens_from_cache_total{{{names('a')}}}": "0+50x40",
    }
    firing = (
        '{__name__="ALERTS",alertname="PrefixcacheEngineMetricMissing",alertstate="firing",'
        'job="engines",instance="a",severity="ticket"}'
    )
    wanted = {RATIO: NO_SERIES, 'ALERTS{alertstate="firing"}': {firing: 1}}
    assert not holds(tmp_path, series, 30, wanted)


def test_t14_the_first_scrape_of_a_process_counts_nothing(tmp_path: Path) -> None:
    """An engine that has served 9 million tokens before anybody asked it."""
    series = {**pair("a", "0+100x20", "0+50x20"), **pair("b", "_x10 9000000x10", "_x10 9000000x10")}
    both = {f"{{{names('a')}}}": 500.0, f"{{{names('b')}}}": 0.0}
    assert not holds(tmp_path, series, 15, {RATIO: {model(): 0.5}, SUMS: both})


def test_t24_sleep_is_told_by_the_state_named_awake(tmp_path: Path) -> None:
    """Three sleeps; the other states change more often and are not looked at."""
    state = f"vllm:engine_sleep_state{{{names('a')},sleep_state"
    series = {
        **pair("a", "0+100x40", "0+50x40"),
        f'{state}="weights_offloaded"}}': "0 1 " * 20,
        f'{state}="awake"}}': "1x9 0x3 1x3 0x3 1x3 0x3 1x12",
    }
    resets = {'{__name__="instance:prefixcache_resets:increase1h",job="engines",instance="a"}': 3.0}
    assert not holds(tmp_path, series, 35, {"instance:prefixcache_resets:increase1h": resets})


def test_t57_a_counter_that_fell_is_a_reset_and_rose_from_0(tmp_path: Path) -> None:
    """5000, then 300 and 900 after a restart: 900 came in, and 450 of them from the cache."""
    series = pair("a", "5000x9 300 900 900x9", "5000x9 150 450 450x9")
    wanted = {
        SUMS: {f"{{{names('a')}}}": 900.0},
        RATIO: {model(): 0.5},
        "instance:prefixcache_resets:increase1h": {
            '{__name__="instance:prefixcache_resets:increase1h",job="engines",instance="a"}': 1.0
        },
    }
    assert not holds(tmp_path, series, 13, wanted)


def test_t58_no_traffic_has_no_ratio_and_no_alert(tmp_path: Path) -> None:
    series = {
        'up{job="engines",instance="a"}': "1x40",
        f"vllm:num_requests_running{{{names('a')}}}": "0x40",
        **pair("a", "500x40", "500x40"),
    }
    assert not holds(tmp_path, series, 40, {RATIO: NO_SERIES, "ALERTS": NO_SERIES})
