"""Asking: credentials, refusals, trying again; and that no secret is ever said."""

import base64
import json
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from exporter.errors import PrefixscopeError
from exporter.sources.prometheus.api import (
    PAUSES_SECONDS,
    PrometheusApi,
    PrometheusFailed,
    TooMuch,
    quoted,
    selector,
)
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from tests.running import free_port
from tests.unit_prometheus.fake_prometheus import Fake, Refusal, serving

SECRET = "s3cret-W0rd"
ONE = {"metric": {"__name__": "up", "job": "a"}, "values": [[1000.5, "1"], [1015.5, "NaN"]]}


def api(address: str, pauses: list[float] | None = None, **more: object) -> PrometheusApi:
    settings = PrometheusSourceSettings.model_validate({"url": address, **more})
    noted = pauses if pauses is not None else []
    return PrometheusApi(settings, noted.append)


def needs(name: str, value: str) -> Fake:
    """A server that answers only requests with this header."""

    def refuse(_path: str, headers: Mapping[str, str]) -> Refusal | None:
        return None if headers.get(name) == value else (401, {}, b"who are you?")

    return Fake([ONE], refuse=refuse)


@pytest.mark.parametrize(
    ("header", "value", "settings"),
    [
        ("Authorization", f"Bearer {SECRET}", {"bearer_token": SECRET}),
        (
            "Authorization",
            "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode(),
            {"username": "me", "password": SECRET},
        ),
        ("X-Scope-OrgID", SECRET, {"headers": {"X-Scope-OrgID": SECRET}}),
    ],
)
def test_credentials_are_sent_and_never_said(
    header: str, value: str, settings: dict[str, object]
) -> None:
    with serving(needs(header, value)) as address:
        assert api(address, **settings).names(0, 2000) == ["up"]
        with pytest.raises(PrometheusFailed, match="refuses our credentials or wants some") as told:
            api(address).names(0, 2000)
        assert told.value.status == 401
        wrong = {key: {"X-Scope-OrgID": "no"} if key == "headers" else f"{text}x"
                 for key, text in settings.items()}  # fmt: skip
        with pytest.raises(PrometheusFailed) as told:
            api(address, **wrong).names(0, 2000)
    assert SECRET not in str(told.value)
    assert SECRET not in repr(PrometheusSourceSettings.model_validate({"url": "a", **settings}))


def test_secrets_from_files(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    with serving(needs("Authorization", f"Bearer {SECRET}")) as address:
        assert api(address, bearer_token_file=file).names(0, 2000) == ["up"]
        file.write_text("")
        with pytest.raises(PrefixscopeError, match=r"bearer_token_file: .* is empty"):
            api(address, bearer_token_file=file)
        with pytest.raises(PrefixscopeError, match="bearer_token_file: cannot be read"):
            api(address, bearer_token_file=tmp_path / "missing")


def test_a_password_in_the_address_is_used_and_never_shown() -> None:
    told = "Basic " + base64.b64encode(f"me:{SECRET}/@".encode()).decode()
    with serving(needs("Authorization", told)) as address:
        bare = address.removeprefix("http://")
        asking = api(f"http://me:{SECRET}%2F%40@{bare}/api/v1/query")
        assert asking.names(0, 2000) == ["up"]
        assert asking.where == address
        wrong = api(f"http://me:{SECRET}@{bare}")
        with pytest.raises(PrometheusFailed) as failed:
            wrong.names(0, 2000)
    assert SECRET not in str(failed.value)
    assert SECRET not in repr(PrometheusSourceSettings(url=f"http://me:{SECRET}@{bare}"))


@pytest.mark.parametrize(
    "settings",
    [
        {"headers": {"X-Key": f"{SECRET}\nEvil: 1"}},
        {"headers": {"Host": SECRET}},
        {"bearer_token": SECRET, "username": "me"},
        {"key_file": SECRET},
        {"url": f"http://me:{SECRET}@host:port"},
        {"url": f"ftp://me:{SECRET}@host"},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as told:
        PrometheusSourceSettings.model_validate({"url": "http://host", **settings})
    said = [error["msg"] for error in told.value.errors(include_input=False)]
    assert not any(SECRET in text for text in said)


def test_a_redirect_is_not_followed_with_our_secret() -> None:
    fake = Fake(refuse=lambda _path, _headers: (302, {"Location": "http://elsewhere/"}, b""))
    with serving(fake) as address:
        with pytest.raises(PrometheusFailed, match="redirects are not followed"):
            api(address, bearer_token=SECRET).names(0, 2000)
        assert len(fake.asked) == 1


def busy(times: int, status: int, headers: dict[str, str] | None = None) -> Fake:
    """A server that is busy so many times."""
    left = [times]

    def refuse(_path: str, _headers: Mapping[str, str]) -> Refusal | None:
        left[0] -= 1
        return (status, headers or {}, b"busy") if left[0] >= 0 else None

    return Fake([ONE], refuse=refuse)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_busy_servers_are_asked_again(status: int) -> None:
    pauses: list[float] = []
    with serving(busy(2, status, {"Retry-After": "7"})) as address:
        assert api(address, pauses).names(0, 2000) == ["up"]
    assert len(pauses) == 2
    assert all(7 <= pause < 9 for pause in pauses)


def test_a_server_that_stays_busy_is_given_up() -> None:
    pauses: list[float] = []
    with serving(fake := busy(99, 503)) as address, pytest.raises(PrometheusFailed, match="503"):
        api(address, pauses).names(0, 2000)
    assert len(fake.asked) == len(PAUSES_SECONDS) + 1
    assert pauses == sorted(pauses)


def test_where_nobody_may_post_the_question_is_in_the_address() -> None:
    fake = Fake([ONE])
    fake.refuse_posts = True
    with serving(fake) as address:
        (series,) = api(address).raw(selector({"job": "a"}), 0, 2000)
    assert series.values == ("1",)


def test_nobody_there() -> None:
    pauses: list[float] = []
    with pytest.raises(PrometheusFailed, match="connection refused: is the Prometheus running"):
        api(f"127.0.0.1:{free_port()}", pauses).names(0, 2000)
    assert len(pauses) == len(PAUSES_SECONDS)


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (422, b'{"status":"error","error":"query exceeded limit of samples"}', TooMuch, "exceeded"),
        (413, b"", TooMuch, "413"),
        (503, b'{"status":"error","error":"query timed out in expression"}', TooMuch, "timed out"),
        (400, b'{"status":"error","error":"parse error: bad"}', PrometheusFailed, "parse error"),
        (404, b"<html>", PrometheusFailed, "Mimir: /prometheus"),
        (200, b"<html>login</html>", PrometheusFailed, "address of a Prometheus"),
        (200, b'{"status":"success","data":{"a":1}}', PrometheusFailed, "not the API's"),
    ],
)
def test_refusals_say_what_to_do(
    status: int, body: bytes, kind: type[Exception], said: str
) -> None:
    fake = Fake(refuse=lambda _path, _headers: (status, {}, body))
    with serving(fake) as address, pytest.raises(kind, match=said) as told:
        api(address).names(0, 2000)
    assert address in str(told.value)
    assert len(fake.asked) == 1


def test_an_answer_beyond_the_limit_is_too_much() -> None:
    with serving(Fake([ONE])) as address, pytest.raises(TooMuch, match="max_answer_bytes"):
        api(address, max_answer_bytes=20).raw(selector({"job": "a"}), 0, 2000)


@pytest.mark.parametrize("left_open", [False, True])
def test_raw_samples_hold_both_ends_and_no_stale_marker(left_open: bool) -> None:
    values = [[1000.0, "1"], [1000.001, "2"], [1015.0, "NaN"], [1030.0, "3"], [1030.001, "4"]]
    fake = Fake([{"metric": {"__name__": "x", "job": "a"}, "values": values}], left_open=left_open)
    with serving(fake) as address:
        (series,) = api(address).raw(selector({"job": "a"}), 1000.001, 1030.0)
    assert series.times == (1_000_001, 1_030_000)
    assert series.values == ("2", "3")


def test_active_targets_where_the_server_scrapes_nothing() -> None:
    def refuse(path: str, _headers: Mapping[str, str]) -> Refusal | None:
        return (404, {}, b"not found") if path == "/api/v1/targets" else None

    with serving(Fake([ONE], refuse=refuse)) as address:
        assert api(address).active_targets() == []
        assert api(address).retention() is None


def test_quoting() -> None:
    odd = 'a"b\\c\nd'
    assert json.loads(f'"{quoted(odd)}"') == odd
    assert selector({"job": odd}, ["b:x", "a.y"]) == (
        '{__name__=~"a\\\\.y|b:x",job="a\\"b\\\\c\\nd"}'
    )


def test_tls_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(cert), "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1"], check=False, capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl cannot make a certificate here")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    with serving(Fake([ONE]), tls) as address:
        assert api(address, ca_file=cert).names(0, 2000) == ["up"]
        assert api(address, insecure_skip_verify=True).names(0, 2000) == ["up"]
        with pytest.raises(PrometheusFailed, match="TLS failed"):
            api(address).names(0, 2000)
        with pytest.raises(PrefixscopeError, match="cannot be used"):
            api(address, ca_file=tmp_path / "missing.pem")
