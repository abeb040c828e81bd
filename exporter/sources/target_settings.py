"""Where the engines' metric pages are: fixed addresses, and lists of them."""

from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from exporter.records import ReplicaRole

Scheme = Literal["http", "https"]

DEFAULT_PATH = "/metrics"


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")


class StaticTarget(_Settings):
    """One engine's metric page."""

    url: str = Field(description="address of the page; /metrics where it names no path")
    name: str | None = Field(default=None, description="shown and kept as the target's name")
    replica: str | None = Field(default=None, description="name of the replica behind it")
    role: ReplicaRole | None = Field(default=None, description="unified, prefill or decode")
    tenant_label: str | None = Field(
        default=None, description="label of its series that names the tenant"
    )
    route_label: str | None = Field(
        default=None, description="label of its series that names the route"
    )

    @field_validator("url")
    @classmethod
    def _with_scheme(cls, url: str) -> str:
        whole = url if "://" in url else f"http://{url}"
        parts = urlsplit(whole)
        # Asking for the port is what checks it; that raises ValueError too.
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("must be http://host:port/path or host:port")
        return urlunsplit(parts._replace(path=parts.path or DEFAULT_PATH, fragment=""))


class FileDiscovery(_Settings):
    """Prometheus-style target files (file_sd), JSON or YAML."""

    files: list[str] = Field(description="paths; the last part may be a pattern like *.json")
    role: ReplicaRole | None = Field(default=None, description="role of all these targets")


class HttpDiscovery(_Settings):
    """A Prometheus-style HTTP list (http_sd)."""

    url: str = Field(description="answers with the same JSON list as a target file")
    role: ReplicaRole | None = Field(default=None, description="role of all these targets")


class DnsDiscovery(_Settings):
    """Every address behind a DNS name, such as a headless Kubernetes service."""

    name: str = Field(description="host name to resolve")
    port: int = Field(ge=1, le=65535, description="port of the metric page")
    path: str = Field(default=DEFAULT_PATH, description="path of the metric page")
    scheme: Scheme = Field(default="http", description="http or https")
    role: ReplicaRole | None = Field(default=None, description="role of all these targets")


class PrometheusDiscovery(_Settings):
    """The active targets of a Prometheus: we poll the same pages it does."""

    url: str = Field(description="address of the Prometheus, without /api")
    jobs: list[str] = Field(default_factory=list, description="only these jobs; none = all")
    role: ReplicaRole | None = Field(default=None, description="role of all these targets")


class TargetSettings(_Settings):
    """Where the engines' metric pages are."""

    static: list[StaticTarget] = Field(default_factory=list, description="fixed addresses")
    file_sd: list[FileDiscovery] = Field(default_factory=list, description="target files")
    http_sd: list[HttpDiscovery] = Field(default_factory=list, description="lists over HTTP")
    dns: list[DnsDiscovery] = Field(default_factory=list, description="headless services")
    prometheus: list[PrometheusDiscovery] = Field(
        default_factory=list, description="active targets of a Prometheus"
    )
    replica_label: str | None = Field(
        default=None,
        description="label that names the replica, on the page's series or the target's labels",
    )
    tenant_label: str | None = Field(
        default=None, description="label of the pages' series that names the tenant"
    )
    route_label: str | None = Field(
        default=None, description="label of the pages' series that names the route"
    )
    refresh_seconds: float = Field(default=30, gt=0, description="how often lists are read again")

    @field_validator("static", mode="before")
    @classmethod
    def _plain_addresses(cls, value: object) -> object:
        """`static: [host:8000]` is enough for most."""
        if isinstance(value, list):
            return [{"url": item} if isinstance(item, str) else item for item in value]
        return value
