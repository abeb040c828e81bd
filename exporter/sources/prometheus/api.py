"""The few questions we ask a Prometheus over its HTTP API, and what its answers mean.

Raw samples come from an instant query with a range selector (`name[1h]`): they are the samples
as they were scraped, at their own times. A range query (`query_range`) would show the last sample
before each step instead, so that resets and first samples between two steps are lost.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import uniform
from typing import Any, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from exporter.errors import PrefixscopeError
from exporter.sources.exposition import Labels
from exporter.sources.fetch import BodyTooLarge, FetchFailed, fetch
from exporter.sources.prometheus.settings import PrometheusAccess

# Seconds before each new try of a question that found nobody, or somebody busy.
PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0)
LONGEST_PAUSE_SECONDS = 60.0
_BUSY = (429, 500, 502, 503, 504)
_POST_REFUSED = 405
# What servers say of a question whose answer would be too much for them, and its status.
_TOO_MUCH = re.compile(
    r"too many|too large|exceed|limit|timed out|time-?out|would load|out of memory", re.IGNORECASE
)
_TOO_MUCH_STATUS = (400, 413, 422, 500, 503, 504)


class PrometheusFailed(PrefixscopeError):
    """The question got no answer; the message names the server and what to do."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class TooMuch(PrometheusFailed):
    """The answer would be larger or slower than the server or we allow: ask for less."""


@dataclass(frozen=True)
class RawSeries:
    """One series and its samples: times in milliseconds, values as the server spells them."""

    labels: Labels
    times: tuple[int, ...]
    values: tuple[str, ...]


class _Answer(BaseModel):
    status: str
    data: Any = None
    error: str | None = None


class ActiveTarget(BaseModel):
    """A target the Prometheus scrapes now."""

    scrapeUrl: str  # noqa: N815  # Prometheus' own spelling
    labels: dict[str, str] = Field(default_factory=dict)
    discoveredLabels: dict[str, str] = Field(default_factory=dict)  # noqa: N815  # its spelling
    scrapeInterval: str | None = None  # noqa: N815  # its spelling


class _ActiveTargets(BaseModel):
    activeTargets: list[ActiveTarget]  # noqa: N815  # Prometheus' own spelling


Kind = TypeVar("Kind")
_NAMES = TypeAdapter(list[str])
_LABEL_SETS = TypeAdapter(list[dict[str, str]])


class PrometheusApi:
    """Asks one server. Tries again, with growing pauses, where that may help."""

    def __init__(
        self, access: PrometheusAccess, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._access = access
        self._pause = pause
        self._carried = access.carried()

    @property
    def where(self) -> str:
        """The address, without any secret."""
        return self._access.url

    def names(self, since: float, until: float) -> list[str]:
        """Names of all metrics with samples in the window (Unix seconds)."""
        path = "/api/v1/label/__name__/values"
        return _checked(_NAMES, self._ask(path, _window(since, until), post=False), self.where)

    def series(self, selector: str, since: float, until: float) -> list[Labels]:
        """The label sets with samples in the window, roughly: servers round to their blocks."""
        asked = {"match[]": selector, **_window(since, until)}
        return _checked(_LABEL_SETS, self._ask("/api/v1/series", asked), self.where)

    def raw(self, selector: str, since: float, until: float) -> list[RawSeries]:
        """Every sample with `since` <= time <= `until`. Raises TooMuch for a window too long.

        The range is asked for a millisecond longer, because servers differ in whether its
        start belongs to it.
        """
        first, last = round(since * 1000), round(until * 1000)
        query = {"query": f"{selector}[{last - first + 1}ms]", "time": f"{last / 1000:.3f}"}
        data = self._ask("/api/v1/query", query)
        try:
            if data["resultType"] != "matrix":
                raise ValueError(f"{data['resultType']} instead of raw samples")
            return [_raw_series(one, first, last) for one in data["result"]]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise PrometheusFailed(
                f"{self.where}: the answer is not the API's: {str(error)[:100]}"
            ) from error

    def active_targets(self) -> list[ActiveTarget]:
        """What is scraped now; nothing where the server scrapes nothing itself (Mimir)."""
        try:
            data = self._ask("/api/v1/targets", {"state": "active"}, post=False)
            return _ActiveTargets.model_validate(data).activeTargets
        except PrometheusFailed as failure:
            if failure.status in (400, 404, 405, 501):
                return []
            raise
        except ValidationError:
            return []

    def retention(self) -> str | None:
        """How long samples are kept, in the server's own words; None where it does not say."""
        try:
            data = self._ask("/api/v1/status/runtimeinfo", {}, post=False)
        except PrometheusFailed:
            return None
        kept = data.get("storageRetention") if isinstance(data, dict) else None
        return str(kept)[:60] if kept else None

    def _ask(self, path: str, asked: Mapping[str, str], *, post: bool = True) -> Any:  # noqa: ANN401
        """The data of one answer; PrometheusFailed once trying again has not helped.

        Long questions are posted, unless something on the way lets nobody post.
        """
        for pause in (*PAUSES_SECONDS, None):
            try:
                return self._once(path, asked, post)
            except FetchFailed as error:
                if post and error.status == _POST_REFUSED:
                    return self._ask(path, asked, post=False)
                failure = self._failure(error)
                busy = error.status is None or error.status in _BUSY
                if pause is None or not busy or isinstance(failure, TooMuch):
                    raise failure from error
                self._pause(_longer(pause, error.retry_after))
        raise AssertionError("the last try returns or raises")

    def _once(self, path: str, asked: Mapping[str, str], post: bool) -> Any:  # noqa: ANN401
        url, form = f"{self._access.url}{path}", urlencode(asked)
        carried = replace(self._carried, form=form.encode()) if post else self._carried
        whole = url if post or not form else f"{url}?{form}"
        fetched = fetch(whole, "application/json", self._access.limits(), carried)
        answer = _answer(fetched.body)
        if answer is None or answer.status != "success":
            said = (answer.error if answer else None) or "is this the address of a Prometheus?"
            raise PrometheusFailed(f"{self.where}: not an answer of the API: {said[:300]}")
        return answer.data

    def _failure(self, error: FetchFailed) -> PrometheusFailed:
        """What went wrong, for a person who looks after the Prometheus."""
        where = self.where
        if isinstance(error, BodyTooLarge):
            return TooMuch(f"{where}: the answer is larger than max_answer_bytes")
        if isinstance(error.__cause__, TimeoutError):
            limit = self._access.query_timeout_seconds
            return TooMuch(f"{where}: no complete answer within {limit:g} s")
        if isinstance(error.__cause__, ConnectionRefusedError):
            return PrometheusFailed(f"{where}: connection refused: is the Prometheus running?")
        if error.status is None:
            return PrometheusFailed(f"{where}: {error}")
        return _refused(where, error, error.status)


def selector(matchers: Mapping[str, str], names: Iterable[str] = ()) -> str:
    """`{__name__=~"a|b",job="vllm"}` for exact labels and any of the names."""
    parts = []
    wanted = sorted(names)
    if wanted:
        parts.append(f'__name__=~"{quoted("|".join(re.escape(name) for name in wanted))}"')
    parts += [f'{name}="{quoted(value)}"' for name, value in sorted(matchers.items())]
    return f"{{{','.join(parts)}}}"


def quoted(text: str) -> str:
    """As it stands between double quotes in a query."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def pieces(since: float, until: float, seconds: float) -> Iterator[tuple[float, float]]:
    """A long window cut into pieces of at most this length, oldest first."""
    while since < until:
        end = min(since + seconds, until)
        yield since, end
        since = end


def _refused(where: str, error: FetchFailed, status: int) -> PrometheusFailed:
    answer = _answer(error.body)
    said = (answer.error if answer else None) or ""
    told = f"{where} answered HTTP {status}" + (f": {said[:300]}" if said else "")
    if status in (401, 403):
        return PrometheusFailed(
            f"{where} answered HTTP {status}: it refuses our credentials or wants some: see "
            "bearer_token_file, username and password_file, headers",
            status,
        )
    if status == 404:
        return PrometheusFailed(
            f"{told}: is a part of its path missing? (Mimir: /prometheus, VictoriaMetrics "
            "cluster: /select/0/prometheus)",
            status,
        )
    if status == 413 or (status in _TOO_MUCH_STATUS and _TOO_MUCH.search(said)):
        return TooMuch(told, status)
    if 300 <= status < 400:
        return PrometheusFailed(f"{where}: {error}", status)
    return PrometheusFailed(told, status)


def _answer(body: bytes) -> _Answer | None:
    try:
        return _Answer.model_validate(json.loads(body))
    except (ValueError, RecursionError):
        return None


def _checked(kind: TypeAdapter[Kind], data: object, where: str) -> Kind:
    try:
        return kind.validate_python(data)
    except ValidationError as error:
        raise PrometheusFailed(f"{where}: the answer is not the API's") from error


def _raw_series(one: Any, first: int, last: int) -> RawSeries:  # noqa: ANN401  # JSON as it came
    """Samples within the window, in order; what is no number ("NaN", stale) is no sample."""
    times, values = [], []
    labels = {str(name): str(value) for name, value in one["metric"].items()}
    for moment, value in one["values"]:
        unix_ms = round(moment * 1000)
        if first <= unix_ms <= last and value != "NaN":
            times.append(unix_ms)
            values.append(str(value))
    return RawSeries(labels, tuple(times), tuple(values))


def _window(since: float, until: float) -> dict[str, str]:
    return {"start": f"{since:.3f}", "end": f"{until:.3f}"}


def _longer(pause: float, retry_after: str | None) -> float:
    """A pause no shorter than the server asked for, a little different for everybody."""
    asked = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
    return min(max(pause, asked), LONGEST_PAUSE_SECONDS) * uniform(1.0, 1.25)  # noqa: S311
