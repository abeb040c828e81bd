"""A shipper's connection stays open between two batches, so that no batch meets its end."""

import http.client
import time
from pathlib import Path
from urllib.parse import urlsplit

from prefixscope.serve import running
from prefixscope.settings import Settings

# LiteLLM posts every 5 s, which was also how long the server library keeps idle connections.
BETWEEN_BATCHES_SECONDS = 6


def test_a_connection_outlives_the_pause_between_two_batches(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"store": {"directory": tmp_path / "store"}, "server": {"listen": "127.0.0.1:0"}}
    )
    with running(settings) as exporter:
        address = urlsplit(exporter.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        for number in range(2):
            time.sleep(number * BETWEEN_BATCHES_SECONDS)
            row = f'{{"request_id": "r{number}", "prompt_tokens": 10, "cached_tokens": 4}}'
            connection.request("POST", "/v1/requests?source=shipper", row)
            reply = connection.getresponse()
            assert (reply.status, b'"accepted": 1' in reply.read()) == (200, True)
        connection.close()
