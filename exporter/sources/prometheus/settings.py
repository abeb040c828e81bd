"""How a Prometheus, or what speaks its API, is reached: address, credentials, headers, TLS.

Secrets are read once, at the first request, and appear in no message: addresses are shown
without user and password, headers by name only.
"""

import base64
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from exporter.errors import PrefixscopeError
from exporter.records import ReplicaRole
from exporter.sources.fetch import Carried, FetchLimits

# Sent by us; a configured header must not contradict what the request is.
OWN_HEADERS = frozenset({"host", "content-length", "content-type", "connection"})


class PrometheusAccess(BaseModel):
    """Where the API is and how it is asked. A password in the address is taken out of it."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(
        description="address without /api/v1; Mimir: …/prometheus, VictoriaMetrics cluster: "
        "…/select/0/prometheus"
    )
    bearer_token: SecretStr | None = Field(default=None, description="sent as Authorization")
    bearer_token_file: Path | None = Field(default=None, description="file with that token")
    username: str | None = Field(default=None, description="user of HTTP basic authentication")
    password: SecretStr | None = Field(default=None, description="password of that user")
    password_file: Path | None = Field(default=None, description="file with that password")
    headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="sent with every request, like X-Scope-OrgID"
    )
    ca_file: Path | None = Field(default=None, description="certificates to trust, PEM")
    cert_file: Path | None = Field(default=None, description="our own certificate, PEM")
    key_file: Path | None = Field(default=None, description="key of our certificate, PEM")
    insecure_skip_verify: bool = Field(default=False, description="trust any certificate")
    query_timeout_seconds: float = Field(default=60, gt=0, description="for one whole answer")
    max_answer_bytes: int = Field(
        default=32 * 1024 * 1024, gt=0, description="largest answer read; pieces shrink below it"
    )

    @model_validator(mode="before")
    @classmethod
    def _without_password(cls, values: Any) -> Any:  # noqa: ANN401  # whatever the file holds
        """User and password of the address become those of basic authentication."""
        url = values.get("url") if isinstance(values, dict) else None
        if not isinstance(url, str) or "@" not in url:
            return values
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
        except ValueError:
            return values  # the field's own check says what is wrong
        user, _, password = parts.netloc.rpartition("@")[0].partition(":")
        bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        told = {"username": unquote(user), "password": unquote(password)}
        return {**told, **values, "url": bare} if user else {**values, "url": bare}

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
        whole = url if "://" in url else f"http://{url}"
        parts = urlsplit(whole)
        # Asking for the port is what checks it.
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("must be http://host:port, or https")
        return urlunsplit(parts._replace(path=_base_path(parts.path), query="", fragment=""))

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in headers.items():
            if name.lower() in OWN_HEADERS or not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(f"{name!r} is no header that can be set")
            if any(ord(letter) < 32 or ord(letter) > 255 for letter in value.get_secret_value()):
                raise ValueError(f"the value of {name} has characters no header can carry")
        return headers

    @model_validator(mode="after")
    def _one_way_in(self) -> "PrometheusAccess":
        bearer = self.bearer_token is not None or self.bearer_token_file is not None
        if bearer and self.username is not None:
            raise ValueError("give a bearer token or a username, not both")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file needs cert_file")
        return self

    def limits(self) -> FetchLimits:
        """One answer may be long: it is a piece of history, not a page."""
        return FetchLimits(10.0, self.query_timeout_seconds, self.max_answer_bytes)

    def carried(self) -> Carried:
        """Headers and TLS of every request; PrefixscopeError where a file cannot be read."""
        headers = {name: value.get_secret_value() for name, value in self.headers.items()}
        if authorization := self._authorization():
            headers["Authorization"] = authorization
        return Carried(headers, tls=self._tls())

    def _authorization(self) -> str | None:
        token = _secret(self.bearer_token, self.bearer_token_file, "bearer_token_file")
        if token is not None:
            return f"Bearer {token}"
        if self.username is None:
            return None
        password = _secret(self.password, self.password_file, "password_file") or ""
        packed = base64.b64encode(f"{self.username}:{password}".encode()).decode()
        return f"Basic {packed}"

    def _tls(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:
            files = [str(f) for f in (self.ca_file, self.cert_file, self.key_file) if f]
            raise PrefixscopeError(
                f"TLS files {', '.join(files)} cannot be used: {error.strerror or error}"
            ) from error
        if self.insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class PrometheusSourceSettings(PrometheusAccess):
    """A Prometheus whose samples are read in place of the engines' own pages."""

    jobs: list[str] = Field(default_factory=list, description="only these jobs; none = all")
    role: ReplicaRole | None = Field(default=None, description="role of all these targets")
    interval_seconds: float = Field(default=15, gt=0, description="between two readings")
    delay_seconds: float = Field(
        default=5, ge=0, description="how old samples must be: until then a scrape may be partial"
    )
    ha_labels: list[str] = Field(
        default_factory=lambda: ["prometheus_replica", "__replica__", "replica"],
        description="labels that tell apart several Prometheus with the same targets",
    )


def _base_path(path: str) -> str:
    """The part before /api/v1: addresses are copied out of dashboards as they are."""
    return path.partition("/api/v1")[0].rstrip("/")


def _secret(given: SecretStr | None, file: Path | None, name: str) -> str | None:
    if given is not None:
        return given.get_secret_value().strip()
    if file is None:
        return None
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PrefixscopeError(f"{name}: cannot be read: {error}") from error
    if not text or not text.isprintable():
        raise PrefixscopeError(f"{name}: {file} is empty or has more than one line")
    return text
