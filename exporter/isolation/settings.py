"""The settings of the hourly audit of scopes."""

from pydantic import BaseModel, ConfigDict, Field

from replay.public_prefixes import CALLERS


class IsolationSettings(BaseModel):
    """What is looked at to tell what scopes cost. Whether they hold is told minute by minute in any
    case."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    audit: bool = Field(True, description="tell every hour what scopes keep from being shared")
    least_tenants: int = Field(
        CALLERS, ge=2, description="as many tenants as send a prefix make it nobody's own"
    )
    most_hashes: int = Field(
        1_000_000,
        ge=1_000,
        description="hashes of the day's latest requests looked at, 80 bytes each while it lasts",
    )
