"""What is said of a log that is to be followed, wherever its rows lie."""

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from exporter.errors import PrefixscopeError
from exporter.records import ReplicaRole
from exporter.sources.formats import format_named
from exporter.sources.formats.expressions import DEFAULTS
from exporter.sources.objects.place import ObjectSettings, Prefix, is_object_path
from exporter.sources.secrets_in_paths import refuse_password
from exporter.sources.spend_logs.place import Address, SpendLogSettings, is_database_path


class LogSettings(BaseModel):
    """One entry under `logs`: files, a prefix of an object store, or a database."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(min_length=1, description="name of the stream; rows are known by it")
    path: str = Field(
        min_length=1,
        description="file, pattern such as /var/log/llm/*.jsonl, prefix such as s3://bucket/logs/, "
        "or database such as postgresql://reader@host/litellm",
    )
    format: str = Field("auto", description="log format; auto = told by the first lines")
    begin: Literal["start", "end"] = Field(
        "start", description="where to begin in files that exist at the very first start"
    )
    defaults: dict[str, str | int] = Field(
        default_factory=dict, description="values of fields that the rows do not have"
    )
    objects: ObjectSettings = Field(
        default_factory=ObjectSettings, description="how a prefix of an object store is read"
    )
    postgres: SpendLogSettings = Field(
        default_factory=SpendLogSettings, description="how LiteLLM's spend logs are read"
    )

    @field_validator("path")
    @classmethod
    def _usable_path(cls, path: str) -> str:
        try:
            if is_object_path(path):
                Prefix.of(path)
            elif is_database_path(path):
                Address.of(path)
            else:
                refuse_password(path)
        except PrefixscopeError as error:
            raise ValueError(str(error)) from error
        return path

    @field_validator("format")
    @classmethod
    def _known_format(cls, name: str) -> str:
        if name != "auto":
            try:
                format_named(name)
            except PrefixscopeError as error:
                raise ValueError(str(error)) from error
        return name

    @field_validator("defaults")
    @classmethod
    def _usable_defaults(cls, given: dict[str, str | int]) -> dict[str, str | int]:
        """Known fields only; a version that YAML reads as a number is text all the same."""
        for name in given:
            if name not in DEFAULTS:
                raise ValueError(f"unknown field {name!r}; known: {', '.join(DEFAULTS)}")
        roles = get_args(ReplicaRole)
        if given.get("replica_role", roles[0]) not in roles:
            raise ValueError(f"replica_role must be one of: {', '.join(roles)}")
        block_size = given.get("block_size", 1)
        if not isinstance(block_size, int) or block_size < 1:
            raise ValueError("block_size must be a whole number of tokens, 1 or more")
        if given.get("cached_tokens", 0) != 0:
            raise ValueError("cached_tokens can only be 0: it declares that rows leave zero out")
        numbers = ("block_size", "cached_tokens")
        return {name: v if name in numbers else str(v) for name, v in given.items()}
