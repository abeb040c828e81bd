"""All settings of prefixscope: one section for each part, composed from the parts' own models."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from exporter.causes.settings import CauseSettings
from exporter.drops import DropSettings
from exporter.geometry import ModelGeometry
from exporter.isolation.settings import IsolationSettings
from exporter.prices import PriceSettings
from exporter.prompts.settings import PromptSettings
from exporter.server_settings import Address, ServerSettings
from exporter.sources.events.settings import EventSettings, checked_apart
from exporter.sources.log_settings import LogSettings
from exporter.sources.names import Names
from exporter.sources.scrape import ScrapeSettings
from exporter.store.store import StoreSettings
from exporter.templates_found.settings import FoundSettings
from prefixscope import settings_file
from prefixscope.settings_file import BadSettings
from prefixscope.weekly.settings import ReportSettings

DEFAULT_STORE = Path("data/store")


class StoreSection(StoreSettings):
    """Where the store is, beside how it keeps what it is given."""

    directory: Path = Field(DEFAULT_STORE, description="folder of the store; made if missing")


class DashboardSettings(BaseModel):
    """Where `--dashboard` serves the pages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: Address = Field("127.0.0.1:8501", description="HOST:PORT of the dashboard")
    base_path: str = Field(
        "",
        pattern=r"^([\w.-]+(/[\w.-]+)*)?$",
        description="path of a reverse proxy that the pages are under, like prefixscope",
    )


class Settings(BaseModel):
    """The whole file. Every section may be left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: StoreSection = Field(default_factory=StoreSection)
    server: ServerSettings = Field(default_factory=ServerSettings)
    logs: list[LogSettings] = Field(default_factory=list, description="log files to follow")
    names: Names = Field(
        default_factory=dict, description="rules that name route, template, tenant…, by source"
    )
    scrape: ScrapeSettings = Field(default_factory=ScrapeSettings)
    events: Annotated[list[EventSettings], AfterValidator(checked_apart)] = Field(
        default_factory=list, description="KV-cache events of engines: what caches hold and lose"
    )
    prices: PriceSettings = Field(default_factory=PriceSettings)
    prompts: PromptSettings = Field(
        default_factory=PromptSettings, description="how prompts in log rows become chains"
    )
    drops: DropSettings = Field(default_factory=DropSettings)
    causes: CauseSettings = Field(default_factory=CauseSettings)
    templates: FoundSettings = Field(default_factory=FoundSettings)
    isolation: IsolationSettings = Field(default_factory=IsolationSettings)
    geometry: list[ModelGeometry] = Field(
        default_factory=list, description="what the KV of a model weighs, for figures in bytes"
    )
    report: ReportSettings = Field(default_factory=ReportSettings)
    dashboard: DashboardSettings = Field(default_factory=DashboardSettings)

    @property
    def has_sources(self) -> bool:
        """Is there anything to scrape, to follow or to hear?"""
        targets = self.scrape.targets
        lists = (targets.static, targets.file_sd, targets.http_sd, targets.dns, targets.prometheus)
        given = (self.logs, self.events, self.scrape.prometheus_source)
        return any(given) or any(lists)


def load_settings(file: Path | None, environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from `file` (None = defaults) with the environment over them, else BadSettings."""
    return settings_file.load(Settings, file, os.environ if environment is None else environment)


def server_token(settings: ServerSettings) -> str | None:
    """The token given, or read from its file; None where none is set."""
    if settings.token is not None:
        return settings.token.get_secret_value().strip()
    if settings.token_file is None:
        return None
    try:
        token = settings.token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"server.token_file: cannot be read: {error}") from error
    if not token:
        raise BadSettings(f"server.token_file: {settings.token_file} is empty")
    return token
