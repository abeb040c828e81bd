"""Exact sums of the demo, worked out while it is generated: what any reading must find."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from prefixscope.demo.fleet import Call
from prefixscope.demo.scenario import LEGACY_GATEWAY, TEMPLATES

_TEMPLATES = {template.name: template for template in TEMPLATES}


@dataclass
class Sums:
    """Sums over log rows. Attempts that failed at the gateway count as requests only."""

    requests: int = 0
    reported_requests: int = 0
    prompt_tokens: int = 0
    reported_prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def add(self, other: "Sums") -> None:
        """Add the sums of other rows."""
        self.requests += other.requests
        self.reported_requests += other.reported_requests
        self.prompt_tokens += other.prompt_tokens
        self.reported_prompt_tokens += other.reported_prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.output_tokens += other.output_tokens


@dataclass
class EngineSums:
    """What the pages of one replica rise by in all, over its restart."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finished_requests: int = 0


@dataclass(frozen=True)
class Facts:
    """The sums by what a row names; rows without a replica stand under ''."""

    total: Sums = field(default_factory=Sums)
    by_route: dict[str, Sums] = field(default_factory=dict)
    by_template: dict[str, Sums] = field(default_factory=dict)
    by_replica: dict[str, Sums] = field(default_factory=dict)
    by_source: dict[str, Sums] = field(default_factory=dict)
    engine: dict[str, EngineSums] = field(default_factory=dict)


class Tally:
    """Adds up calls by template and replica, which all other groups are made of."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str], EngineSums] = {}
        self._failed_requests: Counter[str] = Counter()

    def add(self, call: Call) -> None:
        """Count one ended call."""
        if call.replica is None:
            self._failed_requests[call.template.name] += 1
            return
        key = (call.template.name, call.replica)
        sums = self._served.get(key)
        if sums is None:
            sums = self._served[key] = EngineSums()
        sums.prompt_tokens += call.prompt_tokens
        sums.cached_tokens += call.cached_tokens
        sums.output_tokens += call.output_tokens
        sums.finished_requests += 1

    def facts(self) -> Facts:
        """Group what has been counted so far."""
        total = Sums()
        for _, sums in self._rows():
            total.add(sums)
        return Facts(
            total=total,
            by_route=self._grouped("route"),
            by_template=self._grouped("template"),
            by_replica=self._grouped("replica"),
            by_source=self._grouped("source"),
            engine=self._engine(),
        )

    def _rows(self) -> Iterator[tuple[dict[str, str], Sums]]:
        for (name, replica), sums in self._served.items():
            yield _labels(name, replica), _as_logged(name, sums)
        for name, count in self._failed_requests.items():
            yield _labels(name, ""), Sums(requests=count)

    def _grouped(self, label: str) -> dict[str, Sums]:
        groups: dict[str, Sums] = {}
        for labels, sums in self._rows():
            groups.setdefault(labels[label], Sums()).add(sums)
        return dict(sorted(groups.items()))

    def _engine(self) -> dict[str, EngineSums]:
        engine: dict[str, EngineSums] = {}
        for (_, replica), sums in self._served.items():
            total = engine.setdefault(replica, EngineSums())
            total.prompt_tokens += sums.prompt_tokens
            total.cached_tokens += sums.cached_tokens
            total.output_tokens += sums.output_tokens
            total.finished_requests += sums.finished_requests
        return dict(sorted(engine.items()))


def _labels(template_name: str, replica: str) -> dict[str, str]:
    template = _TEMPLATES[template_name]
    return {
        "route": template.route,
        "template": template_name,
        "replica": replica,
        "source": template.source,
    }


def _as_logged(template_name: str, sums: EngineSums) -> Sums:
    """Tell what a gateway tells of it: one of them does not report cached tokens."""
    reports = _TEMPLATES[template_name].source != LEGACY_GATEWAY
    return Sums(
        requests=sums.finished_requests,
        reported_requests=sums.finished_requests * reports,
        prompt_tokens=sums.prompt_tokens,
        reported_prompt_tokens=sums.prompt_tokens * reports,
        cached_tokens=sums.cached_tokens * reports,
        output_tokens=sums.output_tokens,
    )
