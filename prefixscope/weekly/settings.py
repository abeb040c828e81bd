"""Settings of the scheduled weekly report. Apart from it, so that reading settings stays cheap."""

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
Format = Literal["html", "md", "json"]


class ReportSettings(BaseModel):
    """Where the report of each ended week goes, and when it is made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Path | None = Field(
        None, description="folder of the reports; null = none are made. One folder for an exporter"
    )
    zone: str = Field("UTC", description="time zone whose weeks are reported, like Europe/Berlin")
    weekday: Weekday = Field("monday", description="day after the week on which it is made")
    hour: int = Field(6, ge=0, le=23, description="hour of that day, by the zone's clocks")
    formats: list[Format] = Field(["html"], min_length=1, description="of html, md, json")
    webhook: SecretStr | None = Field(
        None, description="URL told of each report; set PREFIXSCOPE_REPORT__WEBHOOK instead"
    )
    keep: int | None = Field(None, ge=1, description="weeks whose reports stay; null = all")

    @field_validator("zone")
    @classmethod
    def _known(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"{zone!r} is no time zone; write UTC or Europe/Berlin") from None
        return zone

    @field_validator("webhook")
    @classmethod
    def _address(cls, webhook: SecretStr | None) -> SecretStr | None:
        """The message never holds the address: whoever knows it can post."""
        if webhook is None:
            return None
        try:
            parts = urlsplit(webhook.get_secret_value())
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("is not a URL that starts with https:// or http://")
        return webhook

    @model_validator(mode="after")
    def _webhook_of_something(self) -> "ReportSettings":
        if self.webhook is not None and self.folder is None:
            raise ValueError("a webhook needs a folder: set report.folder too")
        return self
