"""Object stores as places of logs: which paths are meant, and how their libraries are reached.

Paths are `s3://`, `gs://` and `az://` prefixes, read through fsspec. Its libraries come with
extras and are imported only where such a path is given. Keys come from where those libraries
look for them (environment, profile, instance role, fsspec's own configuration), never from our
settings, and nothing an object store says is quoted in a message: it may hold a signed address.
"""

import importlib
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from exporter.errors import PrefixscopeError

# Protocol -> extra, and the module that serves it.
_PROTOCOLS = {"s3": ("s3", "s3fs"), "gs": ("gcs", "gcsfs"), "az": ("azure", "adlfs")}
_PATH = re.compile(r"(s3|gs|az)://([^/]+)(?:/(.*))?", re.DOTALL)
_ANY_OF_THEM = re.compile(r"(s3|gs|az):/", re.IGNORECASE)
# `user:password@` before the bucket, and the signature of a shared-access link.
_HOLDS_SECRET = re.compile(r"://[^/]*:[^/]*@|[?&](sig=|x-amz-|x-goog-)", re.IGNORECASE)
# A store that hangs must not keep the exporter from stopping for many minutes.
_TIMEOUTS = {"connect_timeout": 10, "read_timeout": 30}
# What the libraries raise beside OSError, where they are imported.
_ERRORS = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
    ("gcsfs.retry", "HttpError"),
    ("google.auth.exceptions", "GoogleAuthError"),
    ("azure.core.exceptions", "AzureError"),
)


class ObjectSettings(BaseModel):
    """How a prefix of an object store is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    poll_seconds: float = Field(60, gt=0, description="seconds between two listings")
    overlap_seconds: float = Field(
        86400, ge=60, description="how much later than younger objects an object may appear"
    )
    concurrency: int = Field(32, ge=1, le=256, description="objects fetched at the same time")
    memory_bytes: int = Field(
        64 << 20, ge=1 << 20, description="bytes of objects in memory at the same time"
    )


@dataclass(frozen=True)
class Prefix:
    """Every object of `bucket` whose name begins with `start` (and so everything, if empty)."""

    protocol: str
    bucket: str
    start: str

    @classmethod
    def of(cls, path: str) -> "Prefix":
        """Raises PrefixscopeError for a path without a bucket, or one that holds a secret."""
        if _HOLDS_SECRET.search(path):
            raise PrefixscopeError(
                "a path of an object store must not hold a key or a signature: give those by "
                "environment or in fsspec's own configuration"
            )
        match = _PATH.fullmatch(path)
        if match is None:
            raise PrefixscopeError(f"{path}: a path in an object store is s3://BUCKET/PREFIX, "
                                   "gs://BUCKET/PREFIX or az://CONTAINER/PREFIX")  # fmt: skip
        protocol, bucket, start = match.groups()
        return cls(protocol, bucket, start or "")

    def __str__(self) -> str:
        return f"{self.protocol}://{self.bucket}/{self.start}"

    def full_name(self, key: str) -> str:
        """What an object is called by the libraries."""
        return f"{self.bucket}/{key}"


@dataclass(frozen=True)
class Listed:
    """An object as a listing shows it. `version` changes when its content does."""

    key: str
    size: int
    version: str
    modified: datetime


def is_object_path(path: str) -> bool:
    """Whether a path means an object store. `s3:/…` is what is left where somebody took it for
    a path of files."""
    return _ANY_OF_THEM.match(path) is not None


def open_store(prefix: Prefix, settings: ObjectSettings) -> Any:  # noqa: ANN401 - fsspec has no types
    """The fsspec filesystem of a prefix; nothing is asked of it yet.

    Raises PrefixscopeError naming the extra where its library is missing.
    """
    extra, module = _PROTOCOLS[prefix.protocol]
    try:
        fsspec = importlib.import_module("fsspec")
        importlib.import_module(module)
    except ImportError as error:
        raise PrefixscopeError(
            f"{prefix.protocol}:// paths need the extra {extra!r}, which is not installed here: "
            f"pip install 'prefixscope[{extra}]'"
        ) from error
    # A listing kept from before would hide new objects, an instance kept from before new keys.
    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if prefix.protocol == "s3":
        known = fsspec.config.conf.get("s3", {}).get("config_kwargs", {})
        options["config_kwargs"] = {
            "max_pool_connections": settings.concurrency, **_TIMEOUTS, **known
        }  # fmt: skip
        # With more it asks the size of every object first, in a request of its own.
        options["max_concurrency"] = 1
    try:
        opened = fsspec.filesystem(prefix.protocol, **options)
        if prefix.protocol == "s3":  # beside its own library's, and ours
            opened.retries = min(opened.retries, 2)
        return opened
    except library_errors() as error:
        raise PrefixscopeError(f"{prefix}: {reason_of(error)}") from None
    except ValueError:
        # adlfs, without an account in the environment; its message may quote what it found.
        raise PrefixscopeError(f"{prefix}: its account is not configured; set it by "
                               "environment, see docs/object-stores.md") from None  # fmt: skip


def library_errors() -> tuple[type[Exception], ...]:
    """What reading an object store may fail with, of the libraries that are in use."""
    found = (getattr(sys.modules.get(module), name, None) for module, name in _ERRORS)
    return (OSError, TimeoutError, *(error for error in found if error is not None))


def reason_of(error: BaseException) -> str:
    """Why an object store did not answer, in our words only."""
    kind = type(error).__name__
    if isinstance(error, PermissionError):
        return "permission denied: the credentials in use may not do this, or are not valid"
    if isinstance(error, FileNotFoundError):
        return "there is no such bucket or object"
    if isinstance(error, Truncated):
        return "it arrived shorter than it is"
    if "Credential" in kind or kind == "ClientAuthenticationError":
        return "no valid credentials found: give them by environment, see docs/object-stores.md"
    if isinstance(error, TimeoutError | ConnectionError) or _LOST.search(kind):
        return f"the connection failed ({kind})"
    return f"the object store refused or failed ({kind})"


_LOST = re.compile(
    r"Connect|Timeout|Endpoint|Payload|Disconnect|Incomplete|HTTPClient|Protocol|ServiceRequest"
)


class Truncated(OSError):
    """Fewer bytes of an object came than it has."""
