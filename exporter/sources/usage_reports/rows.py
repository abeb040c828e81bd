"""One line of a usage report: what somebody else counted in one span of time.

It is a second account of traffic that our own rows tell of already, so it is compared with them
and never added to them. Token counts are whole tokens; `None` means "not reported".
"""

from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

# Sums of many of them still fit into 64 bits.
MOST_TOKENS = 10**15
LONGEST_BUCKET_SECONDS = 31 * 86_400

Count = Annotated[int, Field(strict=True, ge=0, le=MOST_TOKENS)]
Name = Annotated[str, Field(min_length=1, max_length=256)]


class UsageRow(BaseModel):
    """What one bucket of a report says of one model and tenant; several rows may share both.

    `prompt_tokens` is inclusive: every input token, cached or written or neither. A bucket in
    which nothing was used is one row of zeros without a model: it says that the report covers
    this span.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    day: AwareDatetime = Field(description="start of the bucket")
    bucket_seconds: int = Field(86_400, strict=True, gt=0, le=LONGEST_BUCKET_SECONDS)
    provider: Name
    model: Name | None = None
    tenant: Name | None = Field(
        default=None, description="who is billed, as the report names it: a project or workspace"
    )
    requests: Count | None = None
    prompt_tokens: Count
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    output_tokens: Count | None = None
