"""The on-call page over HTTP: no script, no request to elsewhere, fit for a phone.

What it says is `queries.on_call`'s, the same as in the terminal and on the dashboard; here it
becomes HTML. Every value is escaped by the template.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from urllib.parse import urlencode

import jinja2

from exporter.endpoints.now_address import address, looking
from exporter.endpoints.now_chart import drawn
from queries.on_call import words
from queries.on_call.asking import Ask
from queries.on_call.screen import Screen, look
from queries.on_call.verdict import TONE_WORDS
from queries.on_call.words import Rows

# Everybody an alert wakes opens the same link: within these seconds they share one answer.
SHARED_SECONDS = 15
RELOAD_SECONDS = 30
MOST_SHARED = 32
MOST_REPLICAS = 60


class NowPage:
    """Answers `/now`. Pages are shared between readers for a few seconds."""

    def __init__(self, ask: Ask, version: str) -> None:
        self._ask = ask
        self._version = version
        self._pages: OrderedDict[object, str] = OrderedDict()
        self._alerts: dict[str, Rows] = {}
        self._lock = threading.Lock()

    def _shared(self, name: str, params: Mapping[str, object]) -> Rows:
        """Alerts are judged by the minute, as in Prometheus; no question costs more."""
        if name != "alerts":
            return self._ask(name, params)
        until = params["until"]
        assert isinstance(until, datetime)
        wanted = {**params, "until": until.replace(second=0)}
        key = repr(sorted(wanted.items()))
        if key not in self._alerts:
            self._alerts = {**dict(list(self._alerts.items())[-MOST_SHARED:]),
                            key: self._ask(name, wanted)}  # fmt: skip
        return self._alerts[key]

    def page(self, params: Sequence[tuple[str, str]], clock: datetime) -> str:
        """The page at `clock`; WrongAddress where the parameters cannot be understood."""
        wanted = looking(params, clock)
        key = (int(clock.timestamp()) // SHARED_SECONDS, wanted.at, wanted.zone,
               tuple(sorted(wanted.filters.items())))  # fmt: skip
        with self._lock:
            if key not in self._pages:
                self._pages[key] = render(look(self._shared, wanted, clock), self._version)
                while len(self._pages) > MOST_SHARED:
                    self._pages.popitem(last=False)
            return self._pages[key]


def render(screen: Screen, version: str) -> str:
    """The page as HTML. It reloads by itself unless it looks at a fixed moment."""
    return _templates().get_template("now.html").render(
        screen=screen, version=version,
        tone_words="No data" if screen.empty else TONE_WORDS[screen.tone],
        reload_seconds=None if screen.looking.at else RELOAD_SECONDS,
        drawing=None if screen.chart is None else drawn(screen.chart),
        replicas=screen.replicas[:MOST_REPLICAS], memory=screen.memory[:MOST_REPLICAS],
        link=lambda **change: f"now?{urlencode(address(screen.looking, **change))}",
    )  # fmt: skip


def wrong_page(message: str) -> str:
    """The page for an address that cannot be understood."""
    return _templates().get_template("now_wrong.html").render(message=message)


@cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("exporter"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {
        name: getattr(words, name) for name in ("percent", "points", "whole", "seconds", "plain")
    }
    made.filters["bound"] = lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%")
    made.globals |= {"number": words.number, "moment": words.moment, "clock": words.clock,
                     "band": words.band}  # fmt: skip
    return made
