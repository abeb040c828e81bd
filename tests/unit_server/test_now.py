"""The on-call view: what the verdict says in which state, and that no value becomes markup."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from exporter import now

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
Rows = Sequence[Mapping[str, object]]

FIGURES: dict[str, object] = {
    "token_hit_ratio": None,
    "coverage_ratio": None,
    "prompt_tokens": 0,
    "computed_tokens": 0,
}


class Answers:
    """Rows as the questions give them: the last hour, the hour before, and the replicas."""

    def __init__(self, **state: object) -> None:
        self.state = {"level": 1, "demo": False, "last_ts": NOON, "engine_last_ts": None} | state
        self.log: list[dict[str, object]] = [dict(FIGURES), dict(FIGURES)]
        self.engine: list[dict[str, object]] = [dict(FIGURES), dict(FIGURES)]
        self.replicas: list[dict[str, object]] = []
        self.ttft: list[dict[str, object]] = []
        self.sources: list[dict[str, object]] = []
        self.windows: list[tuple[object, object]] = []

    def __call__(self, name: str, params: Mapping[str, object]) -> Rows:
        if name == "store_state":
            times = {k: v.isoformat() if isinstance(v, datetime) else v
                     for k, v in self.state.items()}  # fmt: skip
            return [times]
        self.windows.append((params["since"], params["until"]))
        if name in ("hit_ratio", "engine_hit_ratio"):
            hours = self.log if name == "hit_ratio" else self.engine
            return [hours[0 if params["until"] == self.windows[0][1] else 1]]
        return {
            "replicas": self.replicas, "ttft_by_outcome": self.ttft,
            "figure_sources": self.sources,
        }[name]  # fmt: skip

    def view(self) -> now.Now:
        return now.summarise(self, NOON)


def hour(ratio: float | None, **more: object) -> dict[str, object]:
    return FIGURES | {"token_hit_ratio": ratio} | more


def test_who_told_the_figures_is_said() -> None:
    answers = Answers()
    answers.sources = [
        {"kind": "log", "source": "gate<way>", "basis": "litellm", "observer": None, "rows": 1_204},
        {"kind": "engine", "source": "", "basis": "scrape", "observer": "engine", "targets": 4},
        {"kind": "engine", "source": "", "basis": "scrape", "observer": "router", "targets": 1},
    ]
    told = (
        "request log gate<way> (litellm, 1,204 rows) and counters of engines polled from 4 targets"
    )
    assert ("told by", told) in now.headline_facts(answers.view())
    assert "gate&lt;way&gt; (litellm" in now.render(answers.view(), "1")
    assert ("told by", "–") in now.headline_facts(Answers().view())


def test_an_empty_store_says_the_first_step() -> None:
    view = Answers(level=None, last_ts=None).view()
    assert view.verdict == now.NO_DATA
    assert view.basis is None


@pytest.mark.parametrize(
    ("ratio", "before", "says"),
    [
        (0.70, 0.72, "70.0 % by request log, steady against the hour before (72.0 %)."),
        (0.40, 0.72, "40.0 % by request log: it fell by 32.0 points from 72.0 %."),
        (0.90, 0.72, "90.0 % by request log: it rose by 18.0 points from 72.0 %."),
        (0.0, None, "0.0 % by request log; nothing to compare with in the hour before."),
    ],
)
def test_the_verdict_compares_with_the_hour_before(
    ratio: float, before: float | None, says: str
) -> None:
    answers = Answers()
    answers.log = [hour(ratio), hour(before)]
    assert answers.view().verdict == f"Token hit ratio {says}"


def test_without_reported_rows_the_engines_speak_and_are_named() -> None:
    answers = Answers(level=0)
    answers.log = [hour(None, prompt_tokens=42_264), hour(None)]
    answers.engine = [hour(0.63), hour(0.62)]
    view = answers.view()
    assert view.basis == "engine counters"
    assert view.verdict.startswith("Token hit ratio 63.0 % by engine counters, steady")


def test_t58_no_traffic_is_no_ratio_and_no_drop() -> None:
    answers = Answers()
    answers.log = [hour(None), hour(0.7)]
    verdict = answers.view().verdict
    assert verdict == "No token hit ratio: nothing reported cached tokens in this hour."


def test_replicas_that_do_not_answer_are_named() -> None:
    answers = Answers()
    answers.log = [hour(0.7), hour(0.7)]
    answers.replicas = [
        {"replica": "a", "target": "a:1", "up": True},
        {"replica": "b", "target": "b:1", "up": False},
        {"replica": None, "target": "c:1", "up": False},
        {"replica": "log-only", "target": None, "up": None},
    ]
    assert answers.view().verdict.endswith(" Not answering: b, c:1.")


def test_old_data_is_called_stale_and_its_own_last_hour_is_shown() -> None:
    last = NOON - timedelta(days=3)
    answers = Answers(last_ts=last)
    answers.log = [hour(0.7), hour(0.7)]
    view = answers.view()
    assert view.verdict.startswith("Stale: the newest data is 3 days old. At that time: Token hit")
    assert view.until == last + timedelta(microseconds=1)
    assert view.until - view.since == timedelta(hours=1)


def test_fresh_data_is_seen_until_this_moment_and_never_beyond() -> None:
    assert Answers(last_ts=NOON - timedelta(minutes=9)).view().until == NOON
    assert Answers(last_ts=NOON + timedelta(days=1)).view().until == NOON


def test_the_page_has_no_script_and_escapes_every_value() -> None:
    hostile: Any = '<script>alert("x")</script>&'
    answers = Answers(demo=True)
    answers.log = [hour(0.7, coverage_ratio=0.5), hour(0.7)]
    answers.replicas = [{"replica": hostile, "target": hostile, "model": hostile, "up": False}]
    answers.ttft = [{"outcome": hostile, "ttft_point": hostile, "p50_seconds": 0.25}]
    page = now.render(answers.view(), version=hostile)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 6
    assert "Synthetic demo data." in page
    assert "70.0 %" in page
    assert "50.0 %" in page
    assert "0.250 s" in page


def test_unknown_is_a_dash_and_never_zero() -> None:
    texts = [show(None) for show in (now.percent, now.whole, now.seconds, now.yes_no)]
    assert texts == ["–"] * 4
    assert now.text(None) == now.text("") == "(not given)"
    assert (now.yes_no(False), now.percent(0.0), now.whole(0)) == ("no", "0.0 %", "0")
