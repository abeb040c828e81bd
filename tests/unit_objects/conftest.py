"""A server of the S3 API on loopback, a front that can break its answers, and readers."""

import itertools
import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from exporter.sources.objects.intake import ObjectReader
from exporter.sources.objects.place import ObjectSettings
from exporter.store.store import Store
from tests.log_path import SMALL
from tests.unit_objects.s3_front import Front

SECRET = "very-secret-access-key"
PAGE_OBJECTS = 7
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def s3_address() -> Iterator[tuple[str, int]]:
    pytest.importorskip("s3fs", reason="s3fs (extra s3) is not installed")
    server_module = pytest.importorskip("moto.server", reason="moto's server is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()
    server.stop()


class Bucket:
    """A bucket of the server, written to directly as other programs would."""

    def __init__(self, name: str) -> None:
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        self.name = name
        self._backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self._backend.create_bucket(name, "us-east-1")

    def put(self, key: str, data: bytes, modified: datetime | None = None) -> None:
        written = self._backend.put_object(self.name, key, data)
        if modified is not None:
            written.last_modified = modified

    def delete(self, key: str) -> None:
        self._backend.delete_object(self.name, key)


@pytest.fixture
def front(
    s3_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Front]:
    """What libraries reach as S3; listings come in small pages."""
    fronting = Front(s3_address)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", fronting.url)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", str(PAGE_OBJECTS))
    yield fronting
    fronting.close()


@pytest.fixture
def bucket(front: Front) -> Bucket:
    return Bucket(f"logs-{next(_NUMBERS)}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store", SMALL)
    yield opened
    opened.close()


@pytest.fixture
def reader(store: Store, bucket: Bucket) -> Callable[..., ObjectReader]:
    """A reader of what begins with `start` in the bucket."""

    def make(start: str = "", *, format: str = "auto", **settings: float) -> ObjectReader:
        return ObjectReader(
            store,
            f"s3://{bucket.name}/{start}",
            source="bucket",
            format=format,
            settings=ObjectSettings.model_validate({"concurrency": 4, **settings}),
        )

    return make
