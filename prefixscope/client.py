"""Questions from the command line: to the exporter that runs, else to the store itself."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import duckdb
import pyarrow as pa
import requests

from exporter.errors import PrefixscopeError, StoreLocked
from exporter.prices import ASKED_BY, ModelPrices
from exporter.store.database import is_of_disk
from exporter.store.owner import read_owner
from exporter.store.store import FILE_NAME, Store
from prefixscope.place import Place
from prefixscope.settings import DEFAULT_STORE, Settings, load_settings
from queries import registry

DEFAULT_URL = "http://127.0.0.1:9465"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
CONNECT_SECONDS, ANSWER_SECONDS = 3.0, 120.0
# The library applies the first of its time-outs to sending too, and a busy writer makes us wait.
UPLOAD_SECONDS = (600.0, 600.0)


class ExporterProblem(PrefixscopeError):
    """The exporter does not answer, or not with what was asked for."""


class WrongQuestion(PrefixscopeError):
    """The question or a parameter is unknown; the message lists what is known."""


class Answers(Protocol):
    """Whoever answers questions. `where` is how to name it to a person."""

    @property
    def where(self) -> str:
        """The address, or the folder."""
        ...

    def ask(self, name: str, params: Mapping[str, object]) -> pa.Table:
        """The answer to one question; WrongQuestion where it cannot be asked so."""
        ...


@dataclass(frozen=True)
class Exporter:
    """A running exporter, over HTTP. `token` None = it needs none."""

    url: str
    token: str | None = None

    @property
    def where(self) -> str:
        """The address asked."""
        return f"the exporter at {self.url}"

    def ask(self, name: str, params: Mapping[str, object]) -> pa.Table:
        """Ask over HTTP; the answer travels as Arrow."""
        response = self.send(
            "GET",
            f"/api/v1/query/{name}",
            params={key: str(value) for key, value in params.items()},
            headers={"Accept": ARROW_STREAM},
        )
        try:
            return pa.ipc.open_stream(response.content).read_all()
        except pa.ArrowInvalid as error:
            raise ExporterProblem(f"{self.url} does not answer as an exporter does") from error

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        data: bytes | Iterator[bytes] | None = None,
    ) -> requests.Response:
        """One request with the token; every answer but success becomes an error to read."""
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            response = requests.request(
                method,
                self.url + path,
                params=params,
                headers={**headers, **bearer},
                data=data,
                timeout=(CONNECT_SECONDS, ANSWER_SECONDS) if data is None else UPLOAD_SECONDS,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            raise ExporterProblem(
                f"no exporter answers at {self.url}: start one with prefixscope serve, "
                "or name another with --url"
            ) from error
        if response.status_code != requests.codes.ok:
            raise _problem(self.url, response)
        return response

    def is_up(self) -> bool:
        """Does an exporter answer there?"""
        try:
            response = requests.get(
                f"{self.url}/-/healthy", timeout=CONNECT_SECONDS, allow_redirects=False
            )
        except requests.RequestException:
            return False
        return response.ok and response.text.startswith("prefixscope")


def _problem(url: str, response: requests.Response) -> PrefixscopeError:
    """What a refused request means for the person who sent it."""
    if response.status_code == requests.codes.unauthorized:
        return ExporterProblem(f"the exporter at {url} needs its token: set PREFIXSCOPE_TOKEN")
    try:
        message = str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        message = f"{url} answered {response.status_code}, which is not how an exporter answers"
    if response.status_code in (requests.codes.bad_request, requests.codes.not_found):
        return WrongQuestion(message)
    return ExporterProblem(f"the exporter at {url}: {message}")


@dataclass(frozen=True)
class OpenStore:
    """The store itself, opened by this process because no exporter has it."""

    store: Store

    @property
    def where(self) -> str:
        """The folder opened."""
        return f"the store in {self.store.directory}"

    def ask(self, name: str, params: Mapping[str, object]) -> pa.Table:
        """Answer on a cursor of its own.

        Prices are looked up first where the question reads them: an exporter would keep them.
        """
        if name in ASKED_BY:
            ModelPrices(self.store, _own_settings().prices).renew()
        try:
            return registry.run(self.store.cursor(), name, params)
        except (registry.UnknownQuestion, registry.BadParameter) as error:
            raise WrongQuestion(str(error)) from error


def _own_settings() -> Settings:
    """What an exporter of this environment would be told."""
    config = os.environ.get("PREFIXSCOPE_CONFIG")
    return load_settings(Path(config) if config else None)


@contextmanager
def connect(place: Place, *, create: bool = False) -> Iterator[Exporter | OpenStore]:
    """Whoever has the data; a store that was opened is closed again.

    Without an address or a folder: the exporter at the usual address, else the usual folder.
    `create` makes a store where there is none yet (for loading data), otherwise that is an error.
    """
    if place.url is not None:
        yield Exporter(place.url.rstrip("/"), place.token)
        return
    usual = Exporter(DEFAULT_URL, place.token)
    if place.store is None and read_owner(DEFAULT_STORE) is None and usual.is_up():
        yield usual
        return
    found = _open_or_owner(place.store or DEFAULT_STORE, place.token, create)
    try:
        yield found
    except duckdb.OperationalError as error:
        if not is_of_disk(error):
            raise
        raise PrefixscopeError(
            f"{found.where} cannot be written: {error}; make room and do it again, nothing is "
            "stored twice"
        ) from error
    finally:
        if isinstance(found, OpenStore):
            found.store.close()


def _open_or_owner(directory: Path, token: str | None, create: bool) -> Exporter | OpenStore:
    """Open the store; where another process has it, the exporter that says it is that process."""
    if not create and not (directory / FILE_NAME).exists():
        raise PrefixscopeError(
            f"there is no store in {directory} and no exporter at {DEFAULT_URL}: start one with "
            "prefixscope serve --config FILE, load a log with prefixscope ingest FILE, start "
            "prefixscope demo, or name one with --store or --url"
        )
    try:
        return OpenStore(Store.open(directory))
    except StoreLocked:
        owner = read_owner(directory)
        if owner is not None and Exporter(owner.url).is_up():
            return Exporter(owner.url, token)
        raise
