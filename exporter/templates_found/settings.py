"""The settings of templates found."""

from pydantic import BaseModel, ConfigDict, Field


class FoundSettings(BaseModel):
    """Whether templates are looked for while the exporter runs. Those known stay in any case."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    find: bool = Field(True, description="look for templates in chains of requests that name none")
