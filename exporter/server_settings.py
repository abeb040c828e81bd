"""Settings of the HTTP server. Apart from the server, so that reading settings stays cheap."""

import ipaddress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator


def _checked_address(text: str) -> str:
    """HOST:PORT; an IPv6 host stands in brackets."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, like 127.0.0.1:9465 or [::1]:9465")
    return text


Address = Annotated[str, AfterValidator(_checked_address)]


def _checked_url(text: str) -> str:
    """A link people can follow; a path (behind a proxy) may be part of it, a query may not."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{text!r} is no address like https://cache.example.org/prefixscope")
    return text.rstrip("/")


ExternalUrl = Annotated[str, AfterValidator(_checked_url)]


def split_address(address: str) -> tuple[str, int]:
    """`127.0.0.1:9465` -> host and port; brackets of an IPv6 host are taken off."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Can only this machine reach it? A name other than localhost counts as reachable."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ServerSettings(BaseModel):
    """Where the exporter listens and how much it takes at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: Address = Field("127.0.0.1:9465", description="HOST:PORT of the exporter")
    external_url: ExternalUrl | None = Field(
        None, description="where people reach it, for links in alerts; where it listens if not set"
    )
    token: SecretStr | None = Field(
        None, description="bearer token every request but health must carry; better a token_file"
    )
    token_file: Path | None = Field(None, description="file that holds the token")
    max_body_bytes: int = Field(
        64 * 2**20, ge=1024, description="largest body of a POST, unpacked; larger gets 413"
    )
    max_waiting_batches: int = Field(
        8, ge=1, description="POSTs taken at once; more get 429 with Retry-After"
    )
    query_threads: int = Field(4, ge=1, description="questions answered at the same time")
    query_timeout_seconds: float = Field(
        30, gt=0, description="a question that takes longer is stopped and gets 503"
    )

    @model_validator(mode="after")
    def _token_where_others_can_reach(self) -> "ServerSettings":
        """What others can reach needs a token: it holds tenant names and takes rows."""
        if self.token is not None and self.token_file is not None:
            raise ValueError("give token or token_file, not both")
        no_token = self.token is None and self.token_file is None
        if no_token and not is_loopback(self.listen):
            raise ValueError(
                f"listening on {self.listen} lets other machines in, so a token is required: "
                "set server.token_file (or PREFIXSCOPE_SERVER__TOKEN), or listen on 127.0.0.1"
            )
        if self.token is not None and not self.token.get_secret_value().strip():
            raise ValueError("token is empty")
        return self
