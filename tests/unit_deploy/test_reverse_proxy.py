"""The shipped nginx configuration in a real nginx, before a real exporter and a real dashboard."""

import base64
import hashlib
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from exporter.server_settings import ServerSettings
from prefixscope.dashboard_process import dashboard
from prefixscope.serve import running as serving
from prefixscope.settings import Settings, StoreSection
from tests.running import ROOT, free_port, get, running, wait_for

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
SHIPPED = ROOT / "deploy" / "nginx" / "prefixscope.conf"
LOGIN = ("someone", "password-of-this-test")
HOST = "observability.example.com"
BASE = "/prefixscope"

pytestmark = pytest.mark.skipif(NGINX is None, reason="apt install nginx: there is none here")


def write_nginx(folder: Path, addresses: dict[str, str]) -> Path:
    """An nginx of this test alone, with the shipped file and this run's addresses."""
    text = SHIPPED.read_text(encoding="utf-8")
    for shipped, address in addresses.items():
        assert shipped in text
        text = text.replace(shipped, address)
    (folder / "prefixscope.conf").write_text(text, encoding="utf-8")
    (folder / "htpasswd").write_text(f"{LOGIN[0]}:{{PLAIN}}{LOGIN[1]}\n", encoding="utf-8")
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    # As root, workers would change to a user who cannot read this folder.
    user = "user root;\n" if os.geteuid() == 0 else ""
    written = folder / "nginx.conf"
    written.write_text(
        f"{user}daemon off;\nworker_processes 1;\npid {folder}/pid;\n"
        f"error_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}"
        f"include {folder}/prefixscope.conf;\n}}\n",
        encoding="utf-8",
    )
    return written


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of nginx, with exporter and dashboard behind it."""
    folder = tmp_path_factory.mktemp("proxy")
    front, pages = free_port(), free_port()
    settings = Settings(
        store=StoreSection(directory=folder / "store"),
        server=ServerSettings(listen="127.0.0.1:0"),
    )
    with ExitStack() as stack:
        exporter = stack.enter_context(serving(settings)).url
        config = write_nginx(folder, {
            "127.0.0.1:8080": f"127.0.0.1:{front}",
            "127.0.0.1:8501": f"127.0.0.1:{pages}",
            "127.0.0.1:9465": exporter.removeprefix("http://"),
            "/etc/nginx/prefixscope.htpasswd": str(folder / "htpasswd"),
        })  # fmt: skip
        at, under = f"127.0.0.1:{pages}", BASE.removeprefix("/")
        stack.enter_context(dashboard(at, exporter, None, under))
        nginx_log = folder / "nginx.log"
        nginx = stack.enter_context(running([str(NGINX), "-c", str(config)], nginx_log))
        url = f"http://127.0.0.1:{front}"
        health = f"{url}{BASE}/exporter/-/healthy"
        wait_for("nginx", lambda: get(health) != b"", 180, nginx, nginx_log)
        yield url


def fetched(proxy: str, path: str, login: tuple[str, str] | None = LOGIN) -> requests.Response:
    return requests.get(
        f"{proxy}{path}", auth=login, headers={"Host": HOST}, timeout=60, allow_redirects=False
    )


def test_the_dashboard_is_under_its_base_path(proxy: str) -> None:
    page = fetched(proxy, f"{BASE}/")
    assert page.status_code == 200
    assert "Streamlit" in page.text
    assert fetched(proxy, f"{BASE}/_stcore/health").text == "ok"
    moved = fetched(proxy, BASE)
    assert (moved.status_code, moved.headers["Location"]) == (301, f"{BASE}/")


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/now", "prefixscope"),
        ("/docs/runbooks/PrefixcacheHitDrop.md", "## Mitigation"),
        ("/api/v1/queries", '"hit_ratio"'),
        ("/-/healthy", "ok"),
    ],
)
def test_the_exporter_is_beside_it(proxy: str, path: str, part: str) -> None:
    reply = fetched(proxy, f"{BASE}/exporter{path}")
    assert reply.status_code == 200
    assert part in reply.text


def test_parameters_of_a_question_reach_it(proxy: str) -> None:
    query = f"{BASE}/exporter/api/v1/query/hit_ratio"
    assert fetched(proxy, f"{query}?by=tenant&since=24h").json() == []
    assert "planet" in fetched(proxy, f"{query}?by=planet").json()["error"]


@pytest.mark.parametrize("path", ["/metrics", "/v1/requests", "/v1/traces", "/", "/now/../metrics"])
def test_metrics_and_intake_stay_inside(proxy: str, path: str) -> None:
    url = f"{proxy}{BASE}/exporter{path}"
    for method in ("GET", "POST"):
        asked = requests.Request(method, url, auth=LOGIN).prepare()
        asked.url = url  # as written: a client would take out the dots
        with requests.Session() as session:
            assert session.send(asked, timeout=60).status_code == 404


def test_without_a_password_only_health_answers(proxy: str) -> None:
    for path in ("/", "/_stcore/stream", "/exporter/now", "/exporter/api/v1/queries"):
        assert fetched(proxy, f"{BASE}{path}", login=None).status_code == 401
    assert fetched(proxy, f"{BASE}/exporter/-/healthy", login=None).status_code == 200


def upgraded(proxy: str, origin: str) -> tuple[str, dict[str, str]]:
    """Status line and headers of the answer to a browser's request for the WebSocket."""
    key = base64.b64encode(b"sixteen bytes is").decode()
    login = base64.b64encode(":".join(LOGIN).encode()).decode()
    host, port = proxy.removeprefix("http://").split(":")
    lines = [
        f"GET {BASE}/_stcore/stream HTTP/1.1", f"Host: {HOST}", f"Origin: {origin}",
        f"Authorization: Basic {login}", "Upgrade: websocket", "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", "",
    ]  # fmt: skip
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall("\r\n".join(lines).encode())
        answer = connection.makefile("rb")
        status = answer.readline().decode().strip()
        headers = {}
        while line := answer.readline().decode().strip():
            name, _, text = line.partition(": ")
            headers[name.lower()] = text
    accepted = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()  # noqa: S324 - RFC 6455
    headers["expected"] = base64.b64encode(accepted).decode()
    return status, headers


def test_the_websocket_opens_for_its_own_site_alone(proxy: str) -> None:
    status, headers = upgraded(proxy, f"http://{HOST}")
    assert status == "HTTP/1.1 101 Switching Protocols"
    assert headers["sec-websocket-accept"] == headers["expected"]
    status, _ = upgraded(proxy, "http://elsewhere.example.net")
    assert status.startswith("HTTP/1.1 403")
