"""No dead names: every name and label that rules and dashboards ask for is on a real page.

A real Prometheus scrapes a page of our exporter and pages of engines of many releases, evaluates
both rule files, and is asked for every selector of every expression.
"""

import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.metrics import DEFINITIONS
from tests.log_path import CAPTURES, needs_captures
from tests.running import ROOT, eventually, free_port, get, running, wait_for
from tests.unit_alerts.full_page import full_pages
from tests.unit_alerts.promql import Selector, alternatives, asked
from tests.unit_alerts.rule_files import RULES, alerts, rules
from tests.unit_deploy.grafana_boards import panels
from tests.unit_prometheus.real_prometheus import MISSING, PROMETHEUS, Engine, Recorded

PAGES = ROOT / "tests" / "unit_engines" / "pages"
# A router's copies of engine metrics are among them: the rules leave these out by a label.
ENGINES = ("vllm", "sglang", "llamacpp", "tensorrt_llm", "production_stack")
CAPTURED = (
    "vllm-0.32.0/main", "vllm-0.32.0/restart", "vllm-0.32.0/external", "llama.cpp-b11434/mixed",
)  # fmt: skip
RECORDS = {rule["record"]: rule["expr"] for f in RULES for rule in rules(f) if "record" in rule}
# Histograms are asked for by their parts.
PARTS = ("_bucket", "_count", "_sum")


def expressions() -> dict[str, str]:
    """Every expression by where it stands: rules, what their texts look up, and panels."""
    found = {}
    for file in RULES:
        for rule in rules(file):
            name = rule.get("alert") or rule["record"]
            found[f"{file.name}: {name}"] = rule["expr"]
            for annotation, text in rule.get("annotations", {}).items():
                for number, query in enumerate(looked_up(text)):
                    found[f"{file.name}: {name}: {annotation} {number}"] = query
    for panel in panels():
        for number, expression in enumerate(panel.expressions):
            found[f"grafana {panel.board}: {panel.title} {number}"] = expression
    return found


def looked_up(template: str) -> list[str]:
    """The queries of an annotation; a label it fills in may be anything."""
    quoted = re.findall(r'(?:query|printf) "((?:[^"\\]|\\.)*)"', template)
    return [text.replace("=%q", '=~".*"') for text in quoted if not text.startswith("%")]


EXPRESSIONS = expressions()


@dataclass
class Lab:
    """A Prometheus that has scraped everything and judged the rules."""

    url: str
    kept: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    def ask(self, path: str, **params: str) -> Any:  # noqa: ANN401 (JSON, by question)
        query = urllib.parse.urlencode({key.replace("_", "[]"): v for key, v in params.items()})
        answer = json.loads(get(f"{self.url}/api/v1/{path}?{query}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    @cached_property
    def labels(self) -> set[str]:
        """Every label of any series."""
        return set(self.ask("labels"))

    def series(self, selector: str) -> list[dict[str, str]]:
        """Label sets of the series a selector finds."""
        if selector not in self.kept:
            self.kept[selector] = self.ask("series", match_=selector)
        return self.kept[selector]


def recorded(pages: Sequence[bytes]) -> list[Recorded]:
    return [Recorded(page, "text/plain; version=0.0.4") for page in pages]


def engine_pages() -> dict[str, list[bytes]]:
    """Pages of each kind and release, one after the other, and of running engines where captures
    are here."""
    found: dict[str, list[bytes]] = {}
    for engine in ENGINES:
        for file in sorted((PAGES / engine).glob("*.txt")):
            name = f"{engine}-{file.stem.removesuffix('.2')}"
            found.setdefault(name, []).append(file.read_bytes())
            # "x.2.txt" sorts before "x.txt" and comes after it.
            found[name].sort(key=len)
    # Every Python process adds this to its page by itself, whatever the engine's release.
    process = b"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.7e+09\n"
    found["vllm-0.33"] = [page + process for page in found["vllm-0.33"]]
    for name in CAPTURED:
        files = sorted((CAPTURES / name / "metrics").glob("*.prom"))
        if files:
            found[f"captured {name}"] = [files[0].read_bytes(), files[-1].read_bytes()]
    return found


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if PROMETHEUS is None:
        pytest.skip(MISSING)
    folder = tmp_path_factory.mktemp("names")
    ours = {"exporter": full_pages(folder / "store")}
    with ExitStack() as stack:
        scraped, served = {}, []
        for job, targets in {"prefixscope": ours, "engines": engine_pages()}.items():
            for name, pages in targets.items():
                engine = Engine(recorded(pages))
                stack.callback(engine.close)
                served.append(engine)
                scraped[engine.address] = (job, name)
        lab = Lab(stack.enter_context(_prometheus(folder, scraped)))
        eventually("a scrape of every target", lambda: len(_scrapes(lab)) == len(scraped))
        for engine in served:
            engine.position = 1
        before = _scrapes(lab)
        # One that was under way may have the page before.
        eventually("the newer page of every target", lambda: _all_rose(before, _scrapes(lab), by=2))
        # The first may have begun before that, and one group reads what another made.
        for _ in range(3):
            _wait_for_judging(lab)
        yield lab


def _scrapes(lab: Lab) -> dict[str, float]:
    """How many scrapes of each target arrived: a slow machine loses some to their time-out."""
    found = lab.ask("query", query="sum_over_time(up[1h]) > 0")["result"]
    return {one["metric"]["instance"]: float(one["value"][1]) for one in found}


def _wait_for_judging(lab: Lab) -> None:
    before = _judged(lab)
    eventually("judging of every rule", lambda: _all_rose(before, _judged(lab), by=1e-3))


def _judged(lab: Lab) -> dict[str, float]:
    """When the judging of each group of rules that last ended began, as unix seconds. A group with
    an interval of its own looks back weeks: nothing here waits for it."""
    groups = [one for one in lab.ask("rules")["groups"] if one["interval"] == 1]
    return {
        f"{group['file']} {group['name']}": datetime.fromisoformat(
            re.sub(r"(\.\d{6})\d+", r"\1", group["lastEvaluation"])
        ).timestamp()
        for group in groups
    }


def _all_rose(before: Mapping[str, float], now: Mapping[str, float], by: float) -> bool:
    return all(now.get(name, 0) >= value + by for name, value in before.items())


@contextmanager
def _prometheus(folder: Path, scraped: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """A Prometheus that scrapes these addresses (job, instance) and judges the rules."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(file) for file in RULES],
        "scrape_configs": [
            {"job_name": job, "static_configs": [
                {"targets": [address], "labels": {"instance": name}}
                for address, (its_job, name) in scraped.items() if its_job == job
            ]}
            for job in ("prefixscope", "engines")
        ],
    }  # fmt: skip
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address, log = f"127.0.0.1:{free_port()}", folder / "log"
    command = [
        str(PROMETHEUS), f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}",
        "--log.level=warn",
    ]  # fmt: skip
    with running(command, log) as process:
        ready = f"http://{address}/-/ready"
        wait_for("Prometheus", lambda: get(ready) != b"", 180, process, log)
        yield f"http://{address}"


def _missing_records(lab: Lab) -> list[str]:
    names = set(lab.ask("label/__name__/values"))
    return [name for name in RECORDS if name not in names and not _needs_history(name)]


def _needs_history(record: str) -> bool:
    """What looks back hours or weeks, itself or by what it is made of, has no series here."""
    made_of = [s.name for s in asked(RECORDS[record]).selectors if s.name in RECORDS]
    return "offset" in RECORDS[record] or any(map(_needs_history, map(str, made_of)))


def test_every_family_of_ours_is_on_the_page(lab: Lab) -> None:
    """So that no name below is excused for being absent most of the time."""
    names = set(lab.ask("label/__name__/values"))
    expected = {
        f"{d.name}_count" if d.type == "histogram" else d.name for d in DEFINITIONS
    }  # fmt: skip
    assert expected <= names


def test_every_record_that_needs_no_history_is_made(lab: Lab) -> None:
    assert _missing_records(lab) == []


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_every_expression_asks_for_what_is_there(lab: Lab, where: str) -> None:
    expression = EXPRESSIONS[where]
    lab.ask("query", query=expression)
    found = asked(expression)
    dead = [one.text for one in found.selectors if not _alive(lab, one)]
    assert dead == []
    for labels in found.labels:
        there = _labels_of(lab, labels.selectors)
        assert there is None or set(labels.names) <= there, labels.names


def _alive(lab: Lab, selector: Selector) -> bool:
    """A series exists for the name (each of several), with labels of that name and value."""
    if selector.name in RECORDS:
        return True  # its own expression is looked at; that it is made is tested above
    if selector.name == "ALERTS":
        return _names_alerts(selector)
    named = {label: value for label, sign, value in selector.matchers if sign == "=~"}
    patterns = alternatives(named["__name__"]) if "__name__" in named else []
    if not all(lab.series(f'{{__name__=~"{pattern}"}}') for pattern in patterns):
        return False
    labels = {label for label, *_ in selector.matchers}
    return bool(lab.series(selector.text)) and labels <= lab.labels


def _names_alerts(selector: Selector) -> bool:
    """Alerts that fire are Prometheus' own series: those it may show are in the rule files."""
    wanted = {label: value for label, _, value in selector.matchers}
    assert set(wanted) <= {"alertname", "alertstate", "severity"}
    return any(re.fullmatch(wanted.get("alertname", ".*"), name) for name in alerts())


def _labels_of(lab: Lab, selectors: tuple[Selector, ...]) -> set[str] | None:
    """Labels that any of these series has; None where all are records without series yet."""
    made = [s for s in selectors if s.name not in RECORDS or lab.series(str(s.name))]
    if not made:
        return None
    # A label of the bucket's bounds, or one that a rule itself puts there, needs no series.
    return {"le", "told_by", "week"} | {
        label for s in made for one in lab.series(s.text) for label in one
    }


@needs_captures
def test_captures_of_running_engines_are_among_the_pages() -> None:
    assert {name for name in engine_pages() if name.startswith("captured")} == {
        f"captured {name}" for name in CAPTURED
    }


@needs_captures
@pytest.mark.parametrize(
    ("captured", "prompt_tokens", "cached_tokens"),
    [("vllm-0.32.0/main", 43_832, 29_696), ("llama.cpp-b11434/mixed", 42_264, 33_174)],
)
def test_the_recorded_ratio_is_that_of_the_engines_counters(
    lab: Lab, captured: str, prompt_tokens: int, cached_tokens: int
) -> None:
    """What the captures' README says their counters rose by, from the first page to the last."""
    name = "instance_model:prefixcache_token_hit_ratio:ratio30m"
    query = f'{name}{{instance="captured {captured}"}}'
    [found] = lab.ask("query", query=query)["result"]
    assert float(found["value"][1]) == pytest.approx(cached_tokens / prompt_tokens, rel=1e-6)


@pytest.mark.parametrize(
    ("selector", "alive"),
    [
        ("prefixcache_prompt_tokens_total", True),
        ("prefixcache_prompt_token_total", False),
        ('prefixcache_kv_tokens{state="runing"}', False),
        ('{__name__=~"vllm[:_]prompt_tokens_total|sglang[:_]promt_tokens_total"}', False),
        ('prefixcache_prompt_tokens_total{tennant=""}', False),
    ],
)
def test_a_dead_name_is_found(lab: Lab, selector: str, alive: bool) -> None:
    [one] = asked(selector).selectors
    assert _alive(lab, one) is alive


def test_a_label_that_is_not_there_is_found(lab: Lab) -> None:
    [labels] = asked("sum by (model, tennant) (prefixcache_prompt_tokens_total)").labels
    there = _labels_of(lab, labels.selectors)
    assert there is not None
    assert set(labels.names) - there == {"tennant"}
