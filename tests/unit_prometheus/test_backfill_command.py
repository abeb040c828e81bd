"""`prefixscope backfill` as a person runs it."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from exporter.store.store import Store
from prefixscope.serve import running as exporting
from prefixscope.settings import Settings
from tests.running import free_port
from tests.unit_cli.conftest import RunCli
from tests.unit_prometheus.fake_prometheus import Fake, Refusal, recorded_fake, serving

SECRET = "s3cret-W0rd"
SUMS = {"vllm-0": (23_528, 12_672), "llama-0": (42_264, 33_174)}


def window(began: float, ended: float) -> tuple[str, ...]:
    """The options for it, with a day before that has nothing."""

    def iso(unix: float) -> str:
        return datetime.fromtimestamp(unix, UTC).isoformat()

    return "--since", iso(began - 86_400), "--until", iso(ended)


def sums(folder: Path) -> dict[str, tuple[int, int]]:
    store = Store.open(folder)
    rows = store.cursor().execute(
        "SELECT replica, sum(prompt_tokens)::BIGINT, sum(cached_tokens)::BIGINT"
        " FROM engine_samples GROUP BY replica"
    )
    told = {replica: (prompt, cached) for replica, prompt, cached in rows.fetchall()}
    store.close()
    return told


def test_what_is_said(cli: RunCli, tmp_path: Path) -> None:
    fake, began, ended = recorded_fake()
    options = ("--store", tmp_path / "s", "--every", 0, *window(began, ended))
    with serving(fake) as address:
        first = cli("backfill", "--prometheus", address, *options)
        again = cli("backfill", "--prometheus", address, *options)
    assert first.status == 0
    assert sums(tmp_path / "s") == SUMS
    assert "history begins 2026-11-30 04:48:00Z, 0.0 days back" in first.out
    assert "this Prometheus keeps 90d" in first.out
    assert "engines/127.0.0.1:39201" in first.out
    assert "2026-11-30 04:48:01Z to 2026-11-30 04:48:41Z" in first.out
    words = first.out.split()
    assert words[words.index("restarts") + 1] == "1"
    assert again.status == 0
    assert "history begins 2026-11-30 04:48:00Z" in again.out
    assert "2026-11-30 04:48:01Z to 2026-11-30 04:48:41Z, left as it is" in again.out
    assert again.out.count("nothing new") == 2
    assert sums(tmp_path / "s") == SUMS


def protected(fake: Fake) -> Fake:
    """The same behind basic authentication and a tenant header."""
    told = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()

    def refuse(_path: str, headers: Mapping[str, str]) -> Refusal | None:
        fits = headers.get("Authorization") == told and headers.get("X-Scope-OrgID") == "llm"
        return None if fits else (401, {}, b"")

    fake.refuse = refuse
    return fake


def test_credentials_are_in_no_output_and_not_in_the_store(
    cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, began, ended = recorded_fake()
    password = tmp_path / "password"
    password.write_text(SECRET)
    said = ""
    with serving(protected(fake)) as address:
        bare = address.removeprefix("http://")
        common = ("--header", "X-Scope-OrgID: llm", *window(began, ended))
        for number, options in enumerate((
            ("--prometheus", address, "--username", "me", "--password-file", password),
            ("--prometheus", f"http://me:{SECRET}@{bare}"),
        )):  # fmt: skip
            done = cli("backfill", *options, "--store", tmp_path / str(number), *common)
            assert done.status == 0, done.err
            assert sums(tmp_path / str(number)) == SUMS
            said += done.out + done.err
        monkeypatch.setenv("PREFIXSCOPE_PROMETHEUS_PASSWORD", SECRET)
        done = cli("backfill", "--prometheus", address, "--username", "me",
                   "--store", tmp_path / "2", *common)  # fmt: skip
        assert done.status == 0, done.err
        wrong = cli("backfill", "--prometheus", f"http://you:{SECRET}@{bare}", "--store",
                    tmp_path / "3", *window(began, ended))  # fmt: skip
    assert wrong.status == 1
    assert "refuses our credentials" in wrong.err
    assert SECRET not in said + done.out + done.err + wrong.out + wrong.err
    for file in (tmp_path / "1").iterdir():
        assert SECRET.encode() not in file.read_bytes()


def test_settings_name_targets_and_the_way_in(cli: RunCli, tmp_path: Path) -> None:
    fake, began, ended = recorded_fake()
    with serving(protected(fake)) as address:
        config = tmp_path / "config.yml"
        config.write_text(f"""
scrape:
  targets:
    static: [{{url: "127.0.0.1:39201", name: west, replica: west-1}}]
  prometheus_source:
    - {{url: "{address}/", username: me, password: {SECRET}, headers: {{X-Scope-OrgID: llm}}}}
""")
        done = cli("backfill", "--config", config, "--store", tmp_path / "s", *window(began, ended))
    assert done.status == 0, done.err
    assert sums(tmp_path / "s") == {"west-1": SUMS["vllm-0"], "llama-0": SUMS["llama-0"]}
    assert SECRET not in done.out + done.err


def test_into_an_exporter_that_needs_its_token(cli: RunCli, tmp_path: Path) -> None:
    fake, began, ended = recorded_fake()
    settings = Settings.model_validate({
        "server": {"listen": f"127.0.0.1:{free_port()}", "token": "exporter-token"},
        "store": {"directory": tmp_path / "s"},
    })  # fmt: skip
    with serving(fake) as address, exporting(settings) as exporter:
        options = ("--prometheus", address, "--url", exporter.url, *window(began, ended))
        refused = cli("backfill", *options)
        assert (refused.status, "needs its token" in refused.err) == (1, True)
        assert cli("backfill", *options, "--token", "exporter-token").status == 0
    assert sums(tmp_path / "s") == SUMS


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "give --prometheus URL"),
        (("--prometheus", "ftp://x"), 1, "url: must be http://host:port"),
        (("--prometheus", "x", "--header", SECRET), 2, "--header is 'NAME: VALUE'"),
        (("--prometheus", "x", "--header", f"Host: {SECRET}"), 1, "no header that can be set"),
        (("--prometheus", "x", "--since", "soon"), 2, "is not a time"),
        (("--prometheus", "x", "--since", "1h", "--until", "2h"), 2, "--since must be earlier"),
    ],
)
def test_wrong_usage(cli: RunCli, arguments: tuple[str, ...], status: int, said: str) -> None:
    done = cli("backfill", *arguments)
    assert done.status == status
    assert said in " ".join(done.err.split())
    assert SECRET not in done.err


def test_no_engine_there(cli: RunCli, tmp_path: Path) -> None:
    with serving(Fake([])) as address:
        done = cli("backfill", "--prometheus", address, "--store", tmp_path / "s")
    assert done.status == 1
    assert "has no metric of a known engine" in done.out
