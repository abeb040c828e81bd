"""Fixtures of the dashboard's tests: a loopback exporter, and pages opened as by a link."""

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tests import empty_store
from tests.unit_dashboard.loopback import APP, Exporter, Open, handler


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exporter]:
    """An exporter with an empty store, found by the dashboard through its environment."""
    with empty_store.lent() as connection:
        made = Exporter(connection)
        with ThreadingHTTPServer(("127.0.0.1", 0), handler(made)) as server:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            made.url = f"http://127.0.0.1:{server.server_port}"
            monkeypatch.setenv("PREFIXSCOPE_URL", made.url)
            monkeypatch.delenv("PREFIXSCOPE_TOKEN", raising=False)
            st.cache_data.clear()
            yield made
            server.shutdown()


@pytest.fixture
def open_page() -> Open:
    """Opens a page through the entry file, as a link to it would."""

    def opened(page: str = "now", **address: str) -> AppTest:
        app = AppTest.from_file(str(APP), default_timeout=180)
        for name, value in address.items():
            app.query_params[name] = value
        if page != "now":
            app.switch_page(f"views/{page}.py")
        return app.run()

    return opened
