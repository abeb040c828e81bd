"""Families of samples -> the text a Prometheus reads, in its classic and in its OpenMetrics form.

prometheus-client can render these too, but formats and escapes every label of every sample
again; an exporter must answer under load. So a series here carries its label text ready made,
and one text serves all families of a label set. A test compares our lines with the library's.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

TEXT_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

FamilyType = Literal["counter", "gauge", "histogram", "info"]

# What the classic format calls a type it does not know.
_CLASSIC_TYPES: dict[FamilyType, str] = {"info": "gauge"}
# What a sample's name has more than its family's in OpenMetrics.
_SUFFIXES: dict[FamilyType, str] = {"counter": "_total", "info": "_info"}


@dataclass
class Family:
    """One metric: `name` as its samples spell it (counters end in `_total`, infos in `_info`).

    A line is (suffix, label text, value); the suffix is empty but for histograms.
    """

    name: str
    type: FamilyType
    help: str
    lines: list[tuple[str, str, float]] = field(default_factory=list)

    def add(self, labels: str, value: float) -> None:
        """Add one series; `labels` comes from `label_text`."""
        self.lines.append(("", labels, value))

    def add_histogram(
        self, labels: str, bounds: Sequence[float], counts: Sequence[int], total: float
    ) -> None:
        """Add one histogram from counts per bucket (not cumulative); the last count is +Inf's."""
        cumulative = 0
        for bound, count in zip([*bounds, math.inf], counts, strict=True):
            cumulative += count
            bucket = f'le="{number_text(bound)}"'
            self.lines.append(("_bucket", f"{bucket},{labels}" if labels else bucket, cumulative))
        self.lines.append(("_count", labels, cumulative))
        self.lines.append(("_sum", labels, total))


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """`a="1",b="2"` with hostile values escaped; every name needs its value."""
    return ",".join(
        f'{name}="{_escape_value(value)}"' for name, value in zip(names, values, strict=True)
    )


def _escape_value(value: str) -> str:
    """Escape what would end the value or the line, and what UTF-8 cannot say."""
    value = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value.encode("utf-8", "replace").decode("utf-8")


def number_text(value: float) -> str:
    """A number as both formats spell it; non-finite values have a spelling of their own."""
    if math.isfinite(value):
        return repr(float(value))
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def render(families: Iterable[Family], *, openmetrics: bool) -> bytes:
    """The whole page. A family without samples keeps its HELP and TYPE, so that it is known."""
    parts: list[str] = []
    for family in families:
        parts.extend(_header(family, openmetrics))
        parts.extend(_sample_lines(family))
    if openmetrics:
        parts.append("# EOF\n")
    return "".join(parts).encode("utf-8")


def _header(family: Family, openmetrics: bool) -> list[str]:
    """HELP and TYPE. OpenMetrics names the family without its sample suffix."""
    name, kind = family.name, _CLASSIC_TYPES.get(family.type, family.type)
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        name, kind = name.removesuffix(_SUFFIXES.get(family.type, "")), family.type
        text = text.replace('"', r"\"")
    return [f"# HELP {name} {text}\n", f"# TYPE {name} {kind}\n"]


def _sample_lines(family: Family) -> list[str]:
    """One line a series; bare name where there is no label."""
    name = family.name
    return [
        f"{name}{suffix}{{{labels}}} {number_text(value)}\n"
        if labels
        else f"{name}{suffix} {number_text(value)}\n"
        for suffix, labels, value in family.lines
    ]


def wants_openmetrics(accept: str) -> bool:
    """Does the Accept header ask for OpenMetrics (1.x, or no version given) over classic text?

    An empty or unknown header gets the classic text, which every reader understands.
    """
    best, best_quality = False, 0.0
    for part in accept.split(","):
        media, *parameters = (token.strip() for token in part.split(";"))
        options = dict(p.split("=", 1) for p in parameters if "=" in p)
        quality = _quality(options.get("q", "1"))
        known = media == "application/openmetrics-text" and options.get(
            "version", "1.0.0"
        ).startswith(("0.", "1."))
        if (known or media in ("text/plain", "text/*", "*/*")) and quality > best_quality:
            best, best_quality = known, quality
    return best


def _quality(text: str) -> float:
    """A preference between 0 and 1; one that cannot be read counts as 0."""
    try:
        return float(text)
    except ValueError:
        return 0.0
