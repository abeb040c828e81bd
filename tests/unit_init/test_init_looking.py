"""What `init` makes of addresses, files and folders, by real sockets and real files."""

import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from prefixscope.commands import init as command
from prefixscope.init.addresses import is_address, look_at_address, target_name
from prefixscope.init.files import look_at_path, source_name
from prefixscope.init.found import Found, FoundLog, FoundPrometheus, FoundTarget, Remark
from prefixscope.settings import load_settings
from tests.loopback_answers import Answer, answering, page
from tests.running import free_port
from tests.unit_cli.conftest import RunCli, cli

__all__ = ["cli"]

CANARY = "CANARY-prompt-7310"
VLLM_PAGE = 'vllm:prompt_tokens_total{model_name="m",engine="0"} 10\nvllm:num_requests_running 0\n'
ROW = {"request_id": "r", "ts": "2026-11-30T04:00:00Z", "prompt_tokens": 100, "cached_tokens": 50,
       "messages": [{"content": CANARY}]}  # fmt: skip


def one(found: list[Found]) -> Found:
    (only,) = found
    return only


def write(file: Path, *rows: Mapping[str, object]) -> Path:
    lines = [json.dumps({**ROW, "request_id": str(n), **row}) for n, row in enumerate(rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("http://h:1", True), ("h:8000", True), ("10.0.0.1:8000/metrics", True),
        ("[::1]:8000", True), ("s3://b/k", True), ("log.jsonl", False), ("/a/b:c", False),
        ("h:port", False), ("~/x", False),
    ],
)  # fmt: skip
def test_addresses_are_told_from_files(given: str, address: bool) -> None:
    assert is_address(given) is address


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://vllm-0.pods.svc:8000/metrics", "vllm-0"),
        ("http://127.0.0.1:8000/metrics", "vllm-8000"),
        ("http://localhost:8000/metrics", "vllm-8000"),
        ("https://10.0.0.7/metrics", "10.0.0.7:443"),
        ("http://[::1]:8000/metrics", "vllm-8000"),
    ],
)
def test_targets_are_named_after_their_hosts(url: str, name: str) -> None:
    assert target_name(url, "vllm") == name


def test_a_metric_page() -> None:
    with answering({"/metrics": page(VLLM_PAGE)}) as server:
        found = one(list(look_at_address(server.address)))
    assert isinstance(found, FoundTarget)
    assert found.url == f"{server.url}/metrics"
    assert (found.title.split()[0], found.models) == ("vLLM", ("m",))


def prometheus(pages: str, *instances: str) -> dict[str, Answer]:
    """One that has scraped engines of the job vllm at these instances, and another job."""
    targets = [
        {"scrapeUrl": f"{pages}/metrics", "labels": {"job": "vllm"}},
        {"scrapeUrl": f"http://127.0.0.1:{free_port()}/metrics", "labels": {"job": "vllm"}},
        {"scrapeUrl": f"{pages}/nodes", "labels": {"job": "node"}},
    ]
    names = ["up", "node_load1", *(["vllm:prompt_tokens_total"] if instances else [])]
    series = [{"__name__": "vllm:prompt_tokens_total", "job": "vllm", "instance": instance}
              for instance in instances]  # fmt: skip

    def data(value: object) -> Answer:
        return Answer(json.dumps({"status": "success", "data": value}))

    return {
        "/api/v1/query": data({"resultType": "vector", "result": []}),
        "/api/v1/label/__name__/values": data(names),
        "POST /api/v1/series": data(series),
        "/api/v1/targets": data({"activeTargets": targets}),
    }


def test_a_prometheus_with_the_jobs_that_matter() -> None:
    with (
        answering({"/metrics": page(VLLM_PAGE)}) as engine,
        answering(prometheus(engine.url, "a:1", "b:1")) as server,
    ):
        found = one(list(look_at_address(server.url)))
    assert isinstance(found, FoundPrometheus)
    assert (found.url, found.jobs) == (server.url, {"vllm": 2})
    assert (found.answered, found.tried) == (1, 2)


def test_a_prometheus_without_engines_is_no_part_of_a_config() -> None:
    with answering(prometheus("http://h")) as server:
        found = one(list(look_at_address(server.url)))
    assert isinstance(found, Remark)
    assert "without series of any engine" in found.what


def test_what_serves_no_page_is_said_with_the_way_to_it() -> None:
    info = Answer(json.dumps({"disable_radix_cache": False, "api_key": CANARY}))
    with answering({"/server_info": info}) as server:
        found = one(list(look_at_address(server.address)))
    assert isinstance(found, Remark)
    assert found.todo == "start SGLang with --enable-metrics"
    assert CANARY not in repr(found)


def test_a_litellm_can_also_send_its_rows() -> None:
    answers = {"/metrics": Answer(status=401), "/health/liveliness": Answer('"I\'m alive!"')}
    with answering(answers) as server:
        page_remark, rows_remark = look_at_address(server.url)
    assert isinstance(page_remark, Remark)
    assert isinstance(rows_remark, Remark)
    assert "require_auth_for_metrics_endpoint: false" in page_remark.todo
    assert "/v1/requests?source=litellm" in rows_remark.todo


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("s3://key:secret@logs/a/", "s3://logs/a/"),
        ("gs://logs", "gs://logs"),
        ("postgresql://reader:secret@db/litellm", "postgresql://USER@db/litellm"),
    ],
)
def test_what_can_be_followed_unseen_is_told_with_its_entry(given: str, shown: str) -> None:
    found = one(list(look_at_address(given)))
    assert isinstance(found, Remark)
    assert f"path: {shown}" in found.todo
    assert f"prefixscope ingest {shown} " in found.todo
    assert "secret" not in repr(found)


def test_a_bucket_that_cannot_be_read_is_told_with_those_that_can() -> None:
    found = one(list(look_at_address("abfss://c:secret@acc/x")))
    assert isinstance(found, Remark)
    assert "s3://, gs:// and az:// are" in found.what
    assert "secret" not in repr(found)


def test_nothing_there_and_nothing_understood() -> None:
    silent = one(list(look_at_address(f"127.0.0.1:{free_port()}")))
    assert isinstance(silent, Remark)
    assert "connection refused" in silent.what
    strange = one(list(look_at_address("ftp://u:secret@h/x")))
    assert isinstance(strange, Remark)
    assert "secret" not in repr(strange)


# ---------------------------------------------------------------- files


def test_a_log_with_its_format_and_why(tmp_path: Path) -> None:
    file = write(tmp_path / "gateway-2026-11-30.jsonl", {}, {}, {"ts": "never"})
    found = one(list(look_at_path(file)))
    assert isinstance(found, FoundLog)
    assert (found.source, found.path, found.format) == ("gateway", str(file), "ndjson")
    assert (found.read, found.sampled) == (2, 3)
    assert "prompt_tokens" in found.because
    assert CANARY not in repr(found)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("gateway.jsonl", "gateway"), ("a b&c.log.gz", "a-b-c"), (".hidden", "hidden"),
        ("sglang-request-metrics-20261130_04.log", "sglang-request-metrics"),
        ("2026-11-30.log", "log"),
    ],
)  # fmt: skip
def test_sources_are_named_after_files(name: str, source: str) -> None:
    assert source_name(Path(name)) == source


def test_names_that_rows_hold_are_suggested_and_secrets_never(tmp_path: Path) -> None:
    extra = {"metadata": {"team": "acme", "user_id": 7, "api_key": "sk-1"}, "model_group": "chat",
             "headers": {"x-session-id": "s"}}  # fmt: skip
    found = one(list(look_at_path(write(tmp_path / "a.jsonl", extra, extra, {}))))
    assert isinstance(found, FoundLog)
    assert found.suggested["tenant"] == (("metadata.team", 2), ("metadata.user_id", 2))
    assert found.suggested["session"] == (("headers.x-session-id", 2),)
    assert found.suggested["route"] == (("model_group", 2),)
    assert "api_key" not in repr(found)
    named = write(tmp_path / "b.jsonl", *[{**extra, "tenant": "t", "session": "s"}] * 2)
    again = one(list(look_at_path(named)))
    assert isinstance(again, FoundLog)
    assert set(again.suggested) == {"route"}, "what the format names needs no rule"


def test_counts_a_format_does_not_read_are_told(tmp_path: Path) -> None:
    """A gateway's rows changed on the way are taken for ours: nothing would be reported."""
    row = {"prompt_tokens": 9, "startTime": 1.5, "usage": {"details": {"cached_tokens": 8}}}
    file = tmp_path / "changed.jsonl"
    file.write_text(json.dumps(row) + "\n")
    found = one(list(look_at_path(file)))
    assert isinstance(found, FoundLog)
    assert found.unread == {"cached_tokens": "usage.details.cached_tokens", "ts": "startTime"}
    assert "usage.details.cached_tokens (cached_tokens) and startTime (ts)" in found.doubt
    whole = one(list(look_at_path(write(tmp_path / "whole.jsonl", {"cached_tokens": 3}, {}))))
    assert isinstance(whole, FoundLog)
    assert whole.doubt == ""


def test_files_that_are_no_log_to_follow(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "page.prom").write_text(VLLM_PAGE)
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    trace = {"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}
    (tmp_path / "trace.jsonl").write_text(json.dumps(trace) + "\n")
    (tmp_path / "bad.jsonl.gz").write_bytes(gzip.compress(os.urandom(999))[:500])
    expected = {
        "x.bin": "none can be read", "page.prom": "recorded metric pages",
        "other.jsonl": "not a request log", "trace.jsonl": "relative", "bad.jsonl.gz": "damaged",
        "nosuch": "No such file",
    }  # fmt: skip
    for name, words in expected.items():
        found = one(list(look_at_path(tmp_path / name)))
        assert isinstance(found, Remark), name
        assert words in found.what, name


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "no plain file" in repr(one(list(look_at_path(tmp_path / "pipe"))))


def test_a_packed_log_and_an_empty_one_can_be_followed(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.jsonl", {})
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "empty.log").touch()
    for name, format_name in (("a.jsonl.gz", "ndjson"), ("empty.log", "auto")):
        found = one(list(look_at_path(tmp_path / name)))
        assert isinstance(found, FoundLog)
        assert found.format == format_name


def test_a_folder_of_like_files_is_one_log(tmp_path: Path) -> None:
    folder = tmp_path / "llm [prod]"
    folder.mkdir()
    write(folder / "a.jsonl", {}, {})
    write(folder / "b.jsonl", {})
    (folder / ".hidden.jsonl").write_text("x")
    found = one(list(look_at_path(folder)))
    assert isinstance(found, FoundLog)
    assert (found.source, found.format, found.read) == ("llm-prod", "ndjson", 3)
    assert found.path == f"{tmp_path}/llm [[]prod]/*.jsonl", "brackets of a name are no pattern"


def test_a_folder_of_unlike_files_is_each_by_itself(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", {})
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "c.log").touch()
    found = list(look_at_path(tmp_path))
    assert [type(one).__name__ for one in found] == ["FoundLog", "Remark", "FoundLog"]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "without files" in repr(one(list(look_at_path(empty))))


def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    folder = tmp_path / "locked"
    folder.mkdir(mode=0)
    assert "Permission denied" in repr(one(list(look_at_path(folder))))


# ---------------------------------------------------------------- the command


def test_a_config_is_written_with_what_comes_next(cli: RunCli, tmp_path: Path) -> None:
    write(tmp_path / "gateway.jsonl", {})
    with answering({"/metrics": page(VLLM_PAGE)}) as server:
        done = cli("init", server.address, "gateway.jsonl", "s3://b", "nosuch.jsonl")
    assert done.status == 0, done.err
    assert "prefixscope doctor --config prefixscope.yml" in done.out
    assert "prefixscope serve --config prefixscope.yml" in done.out
    settings = load_settings(tmp_path / "prefixscope.yml", {})
    assert [t.url for t in settings.scrape.targets.static] == [f"{server.url}/metrics"]
    assert [log.source for log in settings.logs] == ["gateway"]
    text = (tmp_path / "prefixscope.yml").read_text()
    assert "# - s3://b: can be followed" in text
    assert "# - nosuch.jsonl: there is no such file" in text
    assert "create it empty (touch) and run init again" in done.out
    assert CANARY not in text + done.out + done.err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["gateway.jsonl", "prefixscope.yml"]


def test_a_file_is_overwritten_only_by_force(cli: RunCli, tmp_path: Path) -> None:
    write(tmp_path / "g.jsonl", {})
    mine = tmp_path / "prefixscope.yml"
    mine.write_text("logs: []\n")
    done = cli("init", "g.jsonl")
    assert (done.status, mine.read_text()) == (1, "logs: []\n")
    assert "--force" in done.err
    assert cli("init", "g.jsonl", "--force").status == 0
    assert load_settings(mine, {}).logs[0].source == "g"


def test_another_place_and_standard_output(cli: RunCli, tmp_path: Path) -> None:
    write(tmp_path / "g.jsonl", {})
    assert cli("init", "g.jsonl", "--out", "new/c.yml").status == 0
    done = cli("init", "g.jsonl", "--out", "-")
    (tmp_path / "piped.yml").write_text(done.out)
    piped = load_settings(tmp_path / "piped.yml", {})
    assert piped == load_settings(tmp_path / "new" / "c.yml", {})


def test_nothing_usable_writes_nothing(cli: RunCli, tmp_path: Path) -> None:
    done = cli("init", "s3://b/x")
    assert done.status == 1
    assert "nothing was found" in done.err
    assert list(tmp_path.iterdir()) == []


def test_without_arguments_the_usual_ports_are_looked_at(
    cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering({"/metrics": page(VLLM_PAGE)}) as server:
        usual = (f"127.0.0.1:{free_port()}", server.address)
        monkeypatch.setattr(command, "USUAL", usual)
        assert cli("init").status == 0
    assert len(load_settings(tmp_path / "prefixscope.yml", {}).scrape.targets.static) == 1
    monkeypatch.setattr(command, "USUAL", usual[:1])
    done = cli("init", "--force")
    assert done.status == 1
    assert "prefixscope init http://HOST:8000" in done.err
