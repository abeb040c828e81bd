"""How far back causes of missed tokens look."""

from pydantic import BaseModel, ConfigDict, Field


class CauseSettings(BaseModel):
    """What is remembered to tell why tokens missed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    horizon_days: float = Field(
        7, gt=0, le=90, description="what was seen in so many days before is not called new"
    )
    most_blocks: int = Field(
        2_000_000,
        ge=1_000,
        description="blocks remembered at most, 40 to 110 bytes each; more shorten the horizon",
    )
