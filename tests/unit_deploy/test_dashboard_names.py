"""Under which names the dashboard opens its pages: no web page may read it by a name of its own."""

import pytest
from streamlit import config
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

from prefixscope import dashboard_process


def answers(monkeypatch: pytest.MonkeyPatch, host: str, base_path: str = "") -> set[str]:
    """Which of some names are answered, by the options the dashboard is started with."""
    options = dashboard_process._command(host, 8501, base_path)
    told = [text.partition("=")[2] for text in options if text.startswith("--server.allowedHosts=")]
    known = config.get_option
    monkeypatch.setattr(
        config, "get_option", lambda name: told if name == "server.allowedHosts" else known(name)
    )
    names = ("localhost:8501", "127.0.0.1:8501", "[::1]:8501", "127.0.0.7:8501", "evil.example")
    return {name for name in names if is_host_allowed(name)}


def test_on_loopback_only_names_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"localhost:8501", "127.0.0.1:8501", "[::1]:8501"}
    assert answers(monkeypatch, "127.0.0.1") == own
    assert answers(monkeypatch, "::1") == own
    assert answers(monkeypatch, "127.0.0.7") == own | {"127.0.0.7:8501"}


def test_behind_a_proxy_or_for_others_the_names_are_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "evil.example" in answers(monkeypatch, "0.0.0.0")
    assert "evil.example" in answers(monkeypatch, "127.0.0.1", base_path="prefixscope")
    monkeypatch.setenv("STREAMLIT_SERVER_ALLOWED_HOSTS", "metrics.example")
    assert "evil.example" in answers(monkeypatch, "127.0.0.1"), "Streamlit reads it by itself"
