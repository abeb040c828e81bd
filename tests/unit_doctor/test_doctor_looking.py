"""What answers at an address, and what doctor makes of it: by real sockets, without captures."""

import json
import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from exporter.sources.fetch import FetchLimits
from prefixscope.output import to_arrow
from prefixscope.recognise import Kind, base_url, page_url, recognise
from tests.loopback_answers import Answer, answering, page
from tests.running import free_port
from tests.unit_cli.conftest import RunCli, cli

__all__ = ["cli"]

CANARY = "CANARY-sk-5512"
VLLM_PAGE = """\
vllm:prompt_tokens_total{model_name="m",engine="0"} 1000
vllm:prompt_tokens_cached_total{model_name="m",engine="0"} 250
vllm:num_requests_running{model_name="m",engine="0"} 0
"""
LITELLM_PAGE = 'litellm_input_tokens_metric_total{team="t",model="m"} 10\n'
SGLANG_INFO = {
    "version": "0.5.23", "enable_cache_report": False, "disable_radix_cache": False,
    "enable_metrics": False, "api_key": CANARY, "admin_api_key": CANARY,
    "export_metrics_to_file": True, "log_requests_level": 2,
}  # fmt: skip
HTML = Answer("<!DOCTYPE html><html>sign in</html>", content_type="text/html")
LIST = {"data": [{"id": "m", "owned_by": "vllm"}]}
QUICK = FetchLimits(connect_timeout_seconds=1, deadline_seconds=1)


def json_answer(value: object) -> Answer:
    return Answer(json.dumps(value))


PLACES: dict[str, tuple[Mapping[str, Answer], Kind, str, str]] = {
    "a vLLM": ({"/metrics": page(VLLM_PAGE)}, Kind.PAGE, "vLLM", ""),
    "a web page": ({"/metrics": HTML, "/": HTML}, Kind.OTHER, "a web page", ""),
    "a login": ({"/metrics": Answer(status=302, headers={"Location": "/login"}), "/": HTML},
                Kind.OTHER, "a web page", ""),
    "a Prometheus": (
        {"/metrics": page("prometheus_build_info 1\n"),
         "/api/v1/query": json_answer({"status": "success", "data": {"resultType": "vector"}}),
         "/api/v1/status/buildinfo": json_answer({"data": {"version": "3.1"}})},
        Kind.PROMETHEUS, "Prometheus 3.1", ""),
    "an SGLang without metrics": (
        {"/get_server_info": json_answer(SGLANG_INFO)},
        Kind.ENGINE, "SGLang 0.5.23 without its metric page", "--enable-metrics"),
    "a llama.cpp without metrics": (
        {"/metrics": Answer(status=501),
         "/props": json_answer({"default_generation_settings": {}, "build_info": "b11434"})},
        Kind.ENGINE, "llama.cpp b11434 without its metric page", "--metrics"),
    "a vLLM without metrics": (
        {"/metrics": page("python_info 1\n"), "/v1/models": json_answer(LIST),
         "/version": json_answer({"version": "0.32.0"})},
        Kind.ENGINE, "vLLM 0.32.0 without its metrics", "--disable-log-stats"),
    "another OpenAI server": (
        {"/v1/models": json_answer({"data": []})}, Kind.ENGINE, "a server with OpenAI's API", ""),
    "a LiteLLM behind its slash": (
        {"/metrics": Answer(status=307, headers={"Location": "/metrics/"}),
         "/metrics/": page(LITELLM_PAGE), "/health/liveliness": json_answer("I'm alive!")},
        Kind.PAGE, "LiteLLM", ""),
    "a LiteLLM that asks for a key": (
        {"/metrics": Answer(status=401), "/health/liveliness": json_answer("I'm alive!")},
        Kind.ENGINE, "a LiteLLM proxy", "require_auth_for_metrics_endpoint: false"),
    "prefixscope itself": (
        {"/metrics": page("prefixscope_build_info 1\n"),
         "/-/healthy": Answer("prefixscope is healthy\n", content_type="text/plain")},
        Kind.EXPORTER, "a prefixscope exporter", "--url"),
    "JSON that is no object": (
        {"/metrics": Answer("[1]"), "/props": Answer("[" * 5000), "/v1/models": Answer("[]")},
        Kind.OTHER, "another server", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_what_answers(name: str) -> None:
    answers, kind, title, fix = PLACES[name]
    with answering(answers) as server:
        seen = recognise(server.address)
    assert (seen.kind, seen.title.startswith(title)) == (kind, True), seen
    assert fix in (seen.fix or "")
    assert (seen.page is None) is (kind is not Kind.PAGE)
    assert seen.page is not None or seen.error
    assert CANARY not in repr(seen)


def test_nothing_answers_quickly() -> None:
    seen = recognise(f"127.0.0.1:{free_port()}", QUICK)
    assert seen.kind is Kind.SILENT
    assert "connection refused" in (seen.error or "")


@pytest.mark.parametrize(
    ("given", "url", "base"),
    [
        ("host:8000", "http://host:8000/metrics", "http://host:8000"),
        ("https://host/", "https://host/metrics", "https://host"),
        ("http://u:pw@host:1/x/metrics/", "http://host:1/x/metrics/", "http://host:1/x"),
        ("trt:8000/prometheus/metrics", "http://trt:8000/prometheus/metrics", "http://trt:8000"),
        ("http://host/prometheus", "http://host/prometheus", "http://host/prometheus"),
    ],
)
def test_addresses(given: str, url: str, base: str) -> None:
    assert (page_url(given), base_url(given)) == (url, base)


def check(cli: RunCli, *arguments: object) -> tuple[int, dict[str, Any]]:
    done = cli("doctor", *arguments, "--pause", "0", "--output", "json")
    assert CANARY not in done.out + done.err
    told = json.loads(done.out)
    return done.status, {f"{f['check']} {f['severity']}": f for f in told["findings"]}


def test_an_unreachable_target_is_a_fault_and_says_what_is_there(cli: RunCli) -> None:
    with answering({"/get_server_info": json_answer(SGLANG_INFO)}) as server:
        status, found = check(cli, "--target", server.address)
    fault = found["target-reachable fault"]
    assert status == 1
    assert fault["fix"] == "start SGLang with --enable-metrics"
    assert "SGLang 0.5.23" in fault["says"]
    assert found["prompts-leak warning"]["fix"] == "start SGLang with --log-requests-level 0"


def test_an_sglang_says_itself_what_is_off(cli: RunCli) -> None:
    text = (
        'sglang:num_running_reqs{model_name="m"} 0\nsglang:prompt_tokens_total{model_name="m"} 9\n'
    )
    answers = {"/metrics": page(text), "/server_info": json_answer(SGLANG_INFO)}
    with answering(answers) as server:
        _, found = check(cli, "--target", server.address)
    assert "SGLang 0.5.23: model m" in found["target-reachable ok"]["says"]
    assert found["usage-details warning"]["fix"] == "start SGLang with --enable-cache-report"
    assert "--export-metrics-to-file" in found["prompts-leak warning"]["says"]


def test_a_page_behind_a_slash_is_to_be_configured_so(cli: RunCli) -> None:
    """The exporter follows no redirect, so doctor must not either."""
    answers = PLACES["a LiteLLM behind its slash"][0]
    with answering(answers) as server:
        status, found = check(cli, "--target", server.address)
        assert status == 1
        assert found["target-reachable fault"]["fix"] == f"configure {server.url}/metrics/"
        assert check(cli, "--target", f"{server.address}/metrics/")[0] == 0


@pytest.mark.parametrize(("ahead", "said"), [(0, None), (120, "ahead of"), (-120, "behind")])
def test_clocks(cli: RunCli, ahead: float, said: str | None) -> None:
    date = formatdate(time.time() + ahead, usegmt=True)
    answer = Answer(VLLM_PAGE, content_type="text/plain", headers={"Date": date})
    with answering({"/metrics": answer}) as server:
        _, found = check(cli, "--target", server.address)
    skew = found.get("clock-skew warning")
    assert (skew is None) is (said is None)
    assert skew is None or f"s {said} ours" in skew["says"]


def usage(details: object) -> Answer:
    return json_answer({"usage": {"prompt_tokens": 300, "prompt_tokens_details": details}})


@pytest.mark.parametrize(
    ("answer", "expected", "posts"),
    [
        (usage({"cached_tokens": 0}), "usage-details ok", 1),
        (usage(None), "usage-details warning", 2),
        (usage({}), "usage-details warning", 2),
        (json_answer({}), "usage-details note", 1),
        (Answer(status=401), "usage-details note", 1),
        (Answer("no JSON"), "usage-details note", 1),
    ],
)
def test_the_probe(cli: RunCli, answer: Answer, expected: str, posts: int) -> None:
    answers = {"/metrics": page(VLLM_PAGE), "POST /v1/completions": answer}
    with answering(answers) as server:
        _, found = check(cli, "--target", server.address, "--probe")
        assert expected in found
        assert sum(call.startswith("POST") for call in server.asked) == posts
        sent = json.loads(server.bodies[0])
    assert (sent["model"], sent["max_tokens"]) == ("m", 1)


@pytest.mark.parametrize(("status", "warned"), [(403, True), (400, False), (404, False)])
def test_the_probe_asks_vllm_for_its_rendering_behind_a_router(
    cli: RunCli, status: int, warned: bool
) -> None:
    router = {"/metrics": page("vllm_router_active_workers 1\n")}
    engine = {
        "/metrics": page(VLLM_PAGE),
        "POST /v1/chat/completions/render": Answer(status=status),
        "POST /v1/completions": usage({"cached_tokens": 0}),
    }
    with answering(router) as front, answering(engine) as server:
        _, found = check(
            cli, "--target", front.address, "--target", server.address, "--probe"
        )  # fmt: skip
    assert ("scale-out warning" in found) is warned


def config(folder: Path, **sections: object) -> Path:
    file = folder / "c.yml"
    usual = {
        "store": {"directory": str(folder / "store")},
        "server": {"listen": f"127.0.0.1:{free_port()}"},
    }
    file.write_text(yaml.safe_dump({**usual, **sections}), encoding="utf-8")
    return file


def test_logs_that_cannot_be_read_are_faults(cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "binary.log").write_bytes(b'{"what": 1}\n{"ever": 2}\n')
    (tmp_path / "damaged.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00 no gzip")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder").mkdir()
    names = ["nosuch.jsonl", "binary.log", "damaged.jsonl.gz", "empty.jsonl", "folder"]
    logs = [{"source": name, "path": str(tmp_path / name)} for name in names]
    done = cli("doctor", "--config", config(tmp_path, logs=logs), "--output", "json")
    found = {
        f["where"]: f for f in json.loads(done.out)["findings"] if f["check"] == "log-readable"
    }
    assert done.status == 1
    assert {where: f["severity"] for where, f in found.items()} == {
        "nosuch.jsonl": "fault", "binary.log": "fault", "damaged.jsonl.gz": "fault",
        "empty.jsonl": "note", "folder": "fault",
    }  # fmt: skip
    assert "there is no such file" in found["nosuch.jsonl"]["says"]
    assert "not a request log" in found["binary.log"]["says"]
    assert "damaged" in found["damaged.jsonl.gz"]["says"]


def test_an_exporter_with_the_demo_is_not_asked_about_other_settings(
    cli: RunCli, tmp_path: Path
) -> None:
    demo = Answer(to_arrow(pa.table({"demo": [True]})))
    answers = {"/-/healthy": Answer("prefixscope ok"), "/api/v1/query/store_state": demo}
    with answering(answers) as server:
        listen = {"listen": server.address}
        done = cli("doctor", "--config", config(tmp_path, server=listen), "--output", "json")
        asked = {line.partition("?")[0] for line in server.asked}
    (told, nothing) = (f for f in json.loads(done.out)["findings"] if f["check"] == "exporter")
    assert f"{server.url} shows the synthetic demo, not these settings" in told["says"]
    assert "neither a target nor a log" in nothing["says"]
    assert asked == {"GET /-/healthy", "GET /api/v1/query/store_state"}


def test_rows_are_judged_by_the_end_of_a_log_and_hold_no_prompt(
    cli: RunCli, tmp_path: Path
) -> None:
    """Units, clocks and rejects of a log nobody follows yet; its last line is still written."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 7200))
    row = {"ts": now, "prompt_tokens": 900, "cached_tokens": 64, "ttft_seconds": 412.0,
           "prompt": CANARY}  # fmt: skip
    lines = [json.dumps({**row, "request_id": f"r{number}"}) for number in range(40)]
    lines[7] = json.dumps({**row, "ts": later, "request_id": "r7"})
    lines += [json.dumps({**row, "ts": "never", "request_id": "x"}), CANARY]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(lines) + '\n{"cut', encoding="utf-8")
    logs = [{"source": "app", "path": str(log)}]
    status, found = check(cli, "--config", config(tmp_path, logs=logs))
    assert status == 0
    assert found["units warning"]["says"].startswith("the median time to first token is 412 s")
    assert found["log-clock warning"]["says"].startswith("1 of 40 rows began after they arrived")
    # 40 rows are fine, one has no readable time, one is no JSON; the unfinished one is left out.
    assert found["rows-rejected warning"]["says"].startswith("2 rows (4.8%) could not be read")


def test_lists_that_cannot_be_read(cli: RunCli, tmp_path: Path) -> None:
    scrape = {"targets": {"file_sd": [{"files": [str(tmp_path / "no.json")]}]}}
    status, found = check(cli, "--config", config(tmp_path, scrape=scrape))
    assert status == 1
    assert "no.json" in found["lists fault"]["says"]


def test_a_prometheus_in_place_of_pages(cli: RunCli, tmp_path: Path) -> None:
    series = {"__name__": "vllm:prompt_tokens_total", "job": "vllm", "instance": "a:1"}
    answers = {
        "/api/v1/label/__name__/values": json_answer(
            {"status": "success", "data": ["up", "vllm:prompt_tokens_total"]}
        ),
        "POST /api/v1/series": json_answer({"status": "success", "data": [series]}),
        "/api/v1/targets": Answer(status=404),
    }
    with answering(answers) as server:
        scrape = {"prometheus_source": [{"url": server.url, "bearer_token": CANARY}]}
        status, found = check(cli, "--config", config(tmp_path, scrape=scrape))
        assert status == 0
        assert found["prometheus ok"]["says"] == "it has lately scraped 1 engine"
        server.answers["/api/v1/label/__name__/values"] = Answer(status=401)
        status, found = check(cli, "--config", config(tmp_path, scrape=scrape))
    assert status == 1
    assert "refuses our credentials" in found["prometheus fault"]["says"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--target", "ftp://x"),
        ("--target", "x:1", "--url", "http://127.0.0.1:9"),
        ("--config", "c.yml", "--store", "data"),
        ("--config", "c.yml", "--since", "yesterday"),
    ],
)
def test_wrong_usage(cli: RunCli, arguments: tuple[str, ...]) -> None:
    assert cli("doctor", *arguments).status == 2


def test_the_command_line_goes_before_the_environment(
    cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's PREFIXSCOPE_URL does not keep a target or a config from being looked at."""
    silent = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("PREFIXSCOPE_URL", silent)
    with answering({"/metrics": page(VLLM_PAGE)}) as server:
        status, found = check(cli, "--target", server.address)
    assert (status, "target-reachable ok" in found) == (0, True)
    (tmp_path / "log.jsonl").touch()
    own = config(tmp_path, logs=[{"source": "app", "path": str(tmp_path / "log.jsonl")}])
    _, found = check(cli, "--config", own)
    assert found["log-readable note"]["where"] == "app"
    done = cli("doctor")
    assert done.status == 1
    assert f"no exporter answers at {silent}" in done.err
    monkeypatch.setenv("PREFIXSCOPE_CONFIG", str(own))
    assert "log-readable note" in check(cli)[1]
    assert f"no exporter answers at {silent}" in cli("doctor", "--url", silent).err


def test_a_table_for_people_in_which_names_are_text(cli: RunCli) -> None:
    hostile = VLLM_PAGE.replace('"m"', '"\x1b[31mred[/bold]"')
    with answering({"/metrics": page(hostile)}) as server:
        done = cli("doctor", "--target", server.address, "--pause", "0")
    assert done.status == 0
    assert "\x1b" not in done.out
    assert "[/bold]" in done.out
    assert re.fullmatch(r"\d warnings, 1 note", done.out.splitlines()[-1])
    assert "Next step: " in done.out
