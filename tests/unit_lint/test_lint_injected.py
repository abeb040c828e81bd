"""Defects put into real prompts are found, and mending them wins what lint says."""

import pytest

from replay.layout.proof import Replay
from replay.layout.search import in_time
from replay.layout.tokens import Tokenizer
from tests.unit_lint.inject_defects import KINDS, SAMPLE, Session, make_log, sessions
from tests.unit_lint.scoring import Score, prompts_of, searched

pytestmark = pytest.mark.skipif(
    not SAMPLE.is_dir(), reason="the recorded sessions are not beside the project"
)

# `bench/bench_lint.py` holds all seeds from 11 to 30 against the same bar.
_BAR = 0.95


@pytest.fixture(scope="module")
def recorded() -> list[Session]:
    """The recorded sessions."""
    return sessions()


def test_what_was_put_in_is_found_and_nothing_else(recorded: list[Session]) -> None:
    score = Score()
    for seed in (11, 12, 16, 17, 23):
        log = make_log(seed, recorded, turns=2)
        score.add(f"seed {seed}", log, searched(log))
    assert score.right >= 6, "the logs have too few defects to say anything"
    assert score.precision >= _BAR, score.false_findings
    assert score.recall >= _BAR, score.misses


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "template_version"])
def test_the_proof_is_what_mending_the_source_wins(kind: str, recorded: list[Session]) -> None:
    """The mended log comes from the injector, which writes it anew; lint only has the other."""
    log = make_log(12, recorded, [kind], "ids" if kind == "tokenizer_join" else "chat", turns=2)
    mended = make_log(12, recorded, [kind], log.form, repaired=True, turns=2)
    report = searched(log)
    assert [each.kind for each in report.findings] == [kind]
    by_ids = kind == "tokenizer_join"
    before, after = (
        Replay(in_time(prompts_of(rows)), Tokenizer(), known=by_ids).run()
        for rows in (log.rows, mended.rows)
    )
    assert after.cached > before.cached
    assert report.together.cached_tokens == before.cached
    assert report.together.mended_cached_tokens == after.cached
    assert report.findings[0].alone.won_tokens == after.cached - before.cached


def test_a_log_without_defects_has_no_findings(recorded: list[Session]) -> None:
    report = searched(make_log(13, recorded, [], "plain", turns=2))
    assert not report.findings
    assert report.together.won_tokens == 0
