"""Raw samples of one target -> its pages, as they stood when they were scraped.

All samples of one scrape carry one time, so that a page is what has this time. Labels that the
Prometheus put on (job, instance, pod ...) are taken off again: what is left are the series of
the page itself, as our own scraper would have read them. `up` = 0 is a scrape that failed.

A long history need not be read scrape by scrape: increases between two pages far apart are the
same sums. `thinned` keeps so many pages that no sum changes: those on both sides of a restart,
of a failure and of a hole, and of what is left one per `every` seconds.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

from exporter.sources.engines import ENGINES, load_engine
from exporter.sources.engines.mapping import names_to_parse
from exporter.sources.exposition import CREATED, ENGINE_NAME, PROCESS_START, Labels
from exporter.sources.prometheus.api import RawSeries

UP = "up"
NAME = "__name__"
# A target's label that the page has too is renamed by Prometheus on the page's series.
RENAMED = "exported_"
DOWN = "the Prometheus could not scrape it"
# Two scrapes further apart than this have a hole between them, whatever the interval.
HOLE_SECONDS = 300.0
_COUNTING = ("_total", "_count", "_sum", "_bucket")
_START = (CREATED, PROCESS_START)


@dataclass(frozen=True)
class PastPage:
    """One scrape as a Prometheus keeps it. `text` None = it failed."""

    unix: float
    text: str | None


@dataclass
class _Moment:
    """What is known of one scrape while its page is put together."""

    lines: list[str] = field(default_factory=list)
    failed: bool = False

    @property
    def tells(self) -> bool:
        """Whether there is anything to take."""
        return self.failed or bool(self.lines)


def wanted_names(names: Iterable[str]) -> frozenset[str]:
    """Of all names in a Prometheus those that some engine table reads, as they are spelt there."""
    return frozenset(name for name in names if _plain(name) in _names())


def telling_names(names: Iterable[str]) -> frozenset[str]:
    """Of these names those whose presence shows an engine: one series or few each."""
    parts = ("_bucket", "_sum", CREATED, PROCESS_START)
    return frozenset(name for name in wanted_names(names) if not name.endswith(parts))


def pages_of(series: Sequence[RawSeries], target_labels: Mapping[str, str]) -> list[PastPage]:
    """The pages behind these series of one target, oldest first. A scrape that brought none of
    them is no page."""
    types = _type_lines(series)
    told = sorted(_moments(series, target_labels).items())
    return [_page(unix_ms, moment, types) for unix_ms, moment in told if moment.tells]


def thinned(
    series: Sequence[RawSeries], pages: Sequence[PastPage], since: float | None, every: float,
    until: float, final: bool,
) -> list[PastPage]:  # fmt: skip
    """The pages after `since` (the last one taken) worth taking; the sums are those of all.

    `until` is where the asked window ends: behind its last page nothing is known yet, unless
    it is `final` or so far behind that a hole follows.
    """
    needed = _beside_resets(series) | _beside_holes(pages, until, final)
    kept: list[PastPage] = []
    last = since
    failing = False
    for page in pages:
        if since is not None and page.unix <= since:
            continue
        if page.text is None:
            # Of failures in a row the first says all.
            kept += [] if failing else [page]
            failing = True
        elif last is None or page.unix - last >= every or round(page.unix * 1000) in needed:
            kept.append(page)
            last, failing = page.unix, False
    return kept


@cache
def _names() -> frozenset[str]:
    return names_to_parse(tuple(load_engine(name) for name in ENGINES))


@cache
def _series_names() -> frozenset[str]:
    engines = [load_engine(name) for name in ENGINES]
    return frozenset().union(*(e.series_names.union(e.watched, e.version_marks) for e in engines))


@cache
def _plain(name: str) -> str:
    """In the one spelling the tables have."""
    return ENGINE_NAME.sub(r"\1\2:", name)


def _moments(series: Sequence[RawSeries], target_labels: Mapping[str, str]) -> dict[int, _Moment]:
    """Every scrape by its time, with the lines of its page."""
    moments: dict[int, _Moment] = {}
    scrapes = sorted({t for one in series if one.labels.get(NAME) == UP for t in one.times})
    for one in series:
        if one.labels.get(NAME) == UP:
            for unix_ms, value in zip(one.times, one.values, strict=True):
                moments.setdefault(unix_ms, _Moment()).failed = float(value) == 0
            continue
        text = _series_text(one.labels, target_labels)
        for unix_ms, value in zip(one.times, one.values, strict=True):
            moment = moments.setdefault(_scrape_of(unix_ms, scrapes), _Moment())
            moment.lines.append(f"{text} {value}")
    return moments


def _scrape_of(unix_ms: int, scrapes: Sequence[int]) -> int:
    """The scrape that brought a sample: its own time, unless the page stated an earlier one."""
    place = bisect_left(scrapes, unix_ms)
    return scrapes[place] if place < len(scrapes) else unix_ms


def _page(unix_ms: int, moment: _Moment, types: str) -> PastPage:
    unix = unix_ms / 1000
    return PastPage(unix, None if moment.failed else types + "\n".join([*moment.lines, ""]))


def _series_text(labels: Labels, target_labels: Mapping[str, str]) -> str:
    """Name and labels as the page had them."""
    own = {}
    for name, value in labels.items():
        if name == NAME or labels.get(name) == target_labels.get(name):
            continue
        renamed = name.startswith(RENAMED) and name.removeprefix(RENAMED) in target_labels
        own[name.removeprefix(RENAMED) if renamed else name] = value
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(own.items()))
    return f"{labels[NAME]}{{{inside}}}" if inside else labels[NAME]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _type_lines(series: Sequence[RawSeries]) -> str:
    """Counters whose page left `_total` out: only their type line tells that they are some."""
    names = {one.labels.get(NAME, "") for one in series}
    bare = sorted(
        name
        for name in names
        if _plain(name) not in _series_names() and f"{_plain(name)}_total" in _series_names()
    )
    return "".join(f"# TYPE {name} counter\n" for name in bare)


def _beside_holes(pages: Sequence[PastPage], until: float, final: bool) -> set[int]:
    """Times of the pages on both sides of a hole; behind the last page may be one."""
    needed: set[int] = set()
    for earlier, later in pairwise(pages):
        if later.unix - earlier.unix > HOLE_SECONDS:
            needed.update((round(earlier.unix * 1000), round(later.unix * 1000)))
    if pages and (final or until - pages[-1].unix > HOLE_SECONDS):
        needed.add(round(pages[-1].unix * 1000))
    return needed


def _beside_resets(series: Sequence[RawSeries]) -> set[int]:
    """Times of the scrapes before and after a counter fell, started anew or went away."""
    scrapes = sorted({t for one in series for t in one.times})
    told = sorted({t for one in series if one.labels.get(NAME) != UP for t in one.times})
    needed: set[int] = set()
    for one in series:
        name = one.labels.get(NAME, "")
        counts, starts = name.endswith(_COUNTING), name.endswith(_START)
        if not (counts or starts):
            continue
        numbers = [float(value) for value in one.values]
        pairs = zip(one.times, one.times[1:], numbers, numbers[1:], strict=False)
        for earlier, later, before, now in pairs:
            if (counts and now < before) or (starts and now != before):
                # Others may have told more just before, while this one was away.
                needed.update((earlier, told[bisect_left(told, later) - 1], later))
        needed.update(_around_absence(one.times, scrapes))
    return needed


def _around_absence(times: Sequence[int], scrapes: Sequence[int]) -> set[int]:
    """The last scrapes with a series and the first ones without it."""
    needed: set[int] = set()
    for earlier, later in zip(times, (*times[1:], None), strict=False):
        following = bisect_left(scrapes, earlier) + 1
        if following < len(scrapes) and scrapes[following] != later:
            needed.update((earlier, scrapes[following]))
    return needed
