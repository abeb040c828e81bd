import os
import signal
import threading
from pathlib import Path

import pytest

from prefixscope.serve import running
from prefixscope.settings import Settings


def _http_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "http"]


def test_interrupt_ends_the_wait_and_the_server_ends_before_the_store(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"store": {"directory": tmp_path / "store"}, "server": {"listen": "127.0.0.1:0"}}
    )
    with running(settings) as exporter:

        def wait_interrupted() -> None:
            # Begun inside: before, it would end the whole run where a machine is slow.
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            exporter.wait()

        with pytest.raises(KeyboardInterrupt):
            wait_interrupted()
        assert len(_http_threads()) == 1
        assert _http_threads()[0].is_alive()
    assert exporter.server_stopped.is_set()
    assert _http_threads() == []
