"""`serve` with a Prometheus as its only source: from the settings to the pages people read."""

import re
import time
from pathlib import Path

from prefixscope.serve import running as exporting
from prefixscope.settings import Settings
from tests.running import answer, get
from tests.unit_prometheus.fake_prometheus import Fake, recorded_fake, serving


def recorded_until_now() -> Fake:
    """The recorded answers, as if their run had ended a few seconds ago."""
    fake, _, ended = recorded_fake()
    shift = round(time.time() - 3 - ended)
    for one in fake.series:
        one["values"] = [[unix + shift, text] for unix, text in one["values"]]
    return fake


def metrics(exporter: str) -> str:
    """Our own metric page."""
    return get(f"{exporter}/metrics").decode()


def counted(page: str, name: str) -> dict[str, int]:
    """Per replica the value of a counter on our own metric page."""
    found = re.findall(rf'^{name}{{[^}}]*replica="([^"]+)"[^}}]*}} (\S+)$', page, re.MULTILINE)
    return {replica: int(float(value)) for replica, value in found}


def test_from_settings_to_pages(tmp_path: Path) -> None:
    with serving(recorded_until_now()) as address:
        source = {"url": address, "interval_seconds": 0.3, "delay_seconds": 0}
        settings = Settings.model_validate({
            "server": {"listen": "127.0.0.1:0"}, "store": {"directory": tmp_path / "s"},
            "scrape": {"prometheus_source": [source]},
        })  # fmt: skip
        assert settings.has_sources
        with exporting(settings) as exporter:
            end = time.monotonic() + 60
            tokens = "prefixcache_engine_prompt_tokens_total"
            while len(counted(page := metrics(exporter.url), tokens)) < 2:
                assert time.monotonic() < end, page
                time.sleep(0.2)
            rows = answer(exporter.url, "engine_hit_ratio?by=replica")
            assert b"ok" in get(f"{exporter.url}/-/ready")
    told = {row["replica"]: (row["prompt_tokens"], row["cached_tokens"]) for row in rows}
    assert told == {"vllm-0": (23_528, 12_672), "llama-0": (42_264, 33_174)}
    assert counted(page, tokens) == {
        "vllm-0": 23_528, "llama-0": 42_264,
    }  # fmt: skip
    up = re.findall(r'^prefixscope_target_up{target="([^"]+)"} 1(?:\.0)?$', page, re.MULTILINE)
    assert sorted(up) == ["127.0.0.1:38543", "127.0.0.1:39201"]
