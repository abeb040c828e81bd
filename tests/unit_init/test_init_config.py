"""Found things in, a config out: it loads as it is, and with every comment switched on."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import PrefixscopeError
from prefixscope.init.config import config, scalar
from prefixscope.init.found import Found, FoundLog, FoundPrometheus, FoundTarget, Remark
from prefixscope.settings import Settings, load_settings

NOW = datetime(2026, 11, 30, tzinfo=UTC)
HOSTILE = "x: y #\"'\n- [a, {b}]\u2028\x07end"


def read(text: str, folder: Path) -> Settings:
    file = folder / "c.yml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, {})


def target(url: str = "http://a:8000/metrics", name: str = "a", **given: object) -> FoundTarget:
    return FoundTarget(url, name, "vLLM 0.32.0", ("m",), **given)  # type: ignore[arg-type]


def log(source: str = "gateway", path: str = "/var/log/g.jsonl", **given: object) -> FoundLog:
    return FoundLog(source, path, "litellm", "told by x", **given)  # type: ignore[arg-type]


def test_targets_and_logs_become_settings(tmp_path: Path) -> None:
    found: list[Found] = [target(), log(sampled=9, read=8)]
    text = config(found, "c.yml", NOW)
    settings = read(text, tmp_path)
    (page,) = settings.scrape.targets.static
    assert (page.url, page.name) == ("http://a:8000/metrics", "a")
    (followed,) = settings.logs
    assert (followed.source, followed.path, followed.format) == (
        "gateway", "/var/log/g.jsonl", "litellm",
    )  # fmt: skip
    assert "# vLLM 0.32.0, model m" in text
    assert "8 of the first 9 rows are read" in text
    assert "prefixscope doctor --config c.yml" in text


def test_same_names_are_kept_apart_and_same_places_named_once(tmp_path: Path) -> None:
    found: list[Found] = [
        target(), target(), target("http://b:8000/metrics", "a"), target("http://c/metrics", "a-2"),
        target("http://d/metrics", "a"),
        log(), log(path="/elsewhere/g.jsonl"), log(),
    ]  # fmt: skip
    settings = read(config(found, "c.yml", NOW), tmp_path)
    assert [t.name for t in settings.scrape.targets.static] == ["a", "a-2", "a-2-2", "a-3"]
    assert [one.source for one in settings.logs] == ["gateway", "gateway-2"]


def test_pages_a_prometheus_lists_are_read_where_they_can_be(tmp_path: Path) -> None:
    near = FoundPrometheus("http://p:9090", "Prometheus 3.1", {"vllm": 4, "odd job": 1}, 5, 5)
    text = config([near], "c.yml", NOW)
    (used,) = read(text, tmp_path).scrape.targets.prometheus
    assert (used.url, used.jobs) == ("http://p:9090", ["vllm", "odd job"])
    assert "prefixscope backfill --prometheus http://p:9090 --since 30d" in text


def test_else_its_own_samples_are_read(tmp_path: Path) -> None:
    far = FoundPrometheus("http://q:9090", "Prometheus", {"vllm": 4}, 4, 0)
    nameless = FoundPrometheus("http://m/prometheus", "Prometheus", {"": 1, "a": 1}, 0, 0)
    near = FoundPrometheus("http://p:9090", "Prometheus", {"vllm": 1}, 1, 1)
    scrape = read(config([target(), near, far, nameless], "c.yml", NOW), tmp_path).scrape
    assert [(one.url, one.jobs) for one in scrape.prometheus_source] == [
        ("http://q:9090", ["vllm"]), ("http://m/prometheus", []),
    ]  # fmt: skip
    assert [one.url for one in scrape.targets.prometheus] == ["http://p:9090"]
    assert len(scrape.targets.static) == 1
    alone = read(config([far], "c.yml", NOW), tmp_path)
    assert alone.has_sources
    assert alone.scrape.targets.prometheus == []


def test_suggested_rules_are_comments_that_work_when_switched_on(tmp_path: Path) -> None:
    suggested = {
        "tenant": (("metadata.team", 40), ("request_tags[*]", 3)),
        "session": (("headers.x-session-id", 40),),
        "route": (('attributes."app.name"', 2),),
    }
    text = config([log(suggested=suggested, sampled=50, read=50)], "c.yml", NOW)
    assert read(text, tmp_path).names == {}
    start = text.index("# names:")
    block = text[start : text.index("\n\n", start)]
    rules = read(re.sub(r"^# ", "", block, flags=re.MULTILINE), tmp_path).names["gateway"].rules()
    assert {
        name: [str(rule) for rule in listed if not rule.mapped] for name, listed in rules.items()
    } == {
        "tenant": ["field metadata.team", "field request_tags[*]"],
        "session": ["header x-session-id"],
        "route": ['field attributes."app.name"'],
    }


def test_nothing_found_is_an_error_and_no_empty_file() -> None:
    with pytest.raises(PrefixscopeError, match="nothing was found"):
        config([Remark("s3://b", "a bucket")], "c.yml", NOW)


def test_text_from_elsewhere_stays_in_its_comment_and_its_quotes(tmp_path: Path) -> None:
    found: list[Found] = [
        FoundTarget("http://a/metrics", HOSTILE, HOSTILE, (HOSTILE,), (HOSTILE,)),
        FoundLog(HOSTILE, f"/var/{HOSTILE}", "ndjson", HOSTILE, 1, 1,
                 {"tenant": ((f'a."{HOSTILE}"', 1),)}),
        FoundPrometheus("http://p", HOSTILE, {HOSTILE: 1}, 1, 0),
        Remark(HOSTILE, HOSTILE, HOSTILE),
    ]  # fmt: skip
    settings = read(config(found, "c.yml", NOW), tmp_path)
    assert [t.name for t in settings.scrape.targets.static] == [HOSTILE]
    assert [(one.source, one.path) for one in settings.logs] == [(HOSTILE, f"/var/{HOSTILE}")]
    assert [one.jobs for one in settings.scrape.prometheus_source] == [[HOSTILE]]
    assert settings.names == {}


@given(st.text(max_size=60))
def test_any_text_is_read_back_as_it_was(text: str) -> None:
    assert yaml.safe_load(f"- a: {scalar(text)}") == [{"a": text}]
    assert yaml.safe_load(f"[{scalar(text)}]") == [text]


@given(st.text(max_size=300))
def test_any_text_in_a_remark_is_no_setting(text: str) -> None:
    written = config([target(), Remark(text, text, text)], "c.yml", NOW)
    assert set(yaml.safe_load(written)) == {"scrape"}
    remarks = written[written.index("# Recognised") :].splitlines()
    assert all(line.startswith("#") and len(line) <= 100 for line in remarks)


def test_events_are_shown_but_not_switched_on() -> None:
    """Uncommented, the entries are what the settings take; two engines of one host do not meet."""
    engines = [
        FoundTarget(f"http://10.0.0.5:{port}/metrics", f"v-{port}", "vLLM", ("m",), (), "vllm")
        for port in (8000, 8001)
    ]
    text = config(engines, "prefixscope.yml", NOW)
    assert Settings.model_validate(yaml.safe_load(text)).events == []
    lines = text[text.index("# events:") :].split("\n\n")[0].splitlines()
    entries = yaml.safe_load("\n".join(line.removeprefix("# ") for line in lines))
    told = Settings.model_validate(entries).events
    assert [(one.replica, one.endpoint, one.model) for one in told] == [
        ("v-8000", "tcp://10.0.0.5:5557", "m"), ("v-8001", "tcp://10.0.0.5:5757", "m"),
    ]  # fmt: skip
    assert text.count("--kv-events-config") == 2
    other = FoundTarget("http://10.0.0.6:8080/metrics", "l", "llama.cpp", (), (), "llamacpp")
    assert "events" not in config([other], "prefixscope.yml", NOW)
