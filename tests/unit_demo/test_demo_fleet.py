"""One replica and the prompts it gets, against figures worked out by hand."""

from collections.abc import Iterator
from itertools import count
from random import Random

import pytest

from prefixscope.demo.blocks import text_of
from prefixscope.demo.fleet import Call, Replica
from prefixscope.demo.pages import metric_page
from prefixscope.demo.prompts import PromptBook, Session
from prefixscope.demo.scenario import LEGACY_GATEWAY, TEMPLATES, LoadCurve, Template
from prefixscope.demo.traffic import Traffic

PLAIN = Template("plain", "chat", "v1", 1, 640, 64, 16)
numbers: Iterator[int] = count(1)


def session(template: Template = PLAIN, **changed: object) -> Session:
    fields: dict[str, object] = {
        "name": "s",
        "template": template,
        "version": template.version,
        "tenant": "oak",
        "turns": 1,
        "replica": 0,
    }
    return Session(**(fields | changed))  # type: ignore[arg-type]


def call(arrived: float, chain: list[int], prompt_tokens: int, output_tokens: int = 16) -> Call:
    return Call(
        number=next(numbers),
        attempt=1,
        arrived=arrived,
        name="s",
        turn=1,
        template=PLAIN,
        version="v1",
        tenant="oak",
        session=session(),
        chain=chain,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
    )


def test_cached_tokens_and_prefill_follow_from_the_pool() -> None:
    replica = Replica("r", prefill_tokens_per_second=1_000, started=0)
    first = call(10, list(range(10)), prompt_tokens=640)
    replica.submit(first)
    assert replica.advance(10) == [first]
    # All 640 tokens at 1,000 a second, and 0.03 s to begin; 16 tokens at 16 a second follow.
    assert (first.cached_tokens, first.prefill_seconds) == (0, 0.67)
    assert first.ended == pytest.approx(10 + 0.67 + 1.0)

    second = call(20, list(range(10)), prompt_tokens=640)
    replica.submit(second)
    replica.advance(20)
    # The last token is always computed, so 9 of its 10 blocks of 64 are reused.
    assert (second.cached_tokens, second.prefill_seconds) == (576, 0.094)


def test_one_prefill_at_a_time() -> None:
    replica = Replica("r", prefill_tokens_per_second=1_000, started=0)
    first, second = call(0, list(range(10)), 640), call(0.2, list(range(10)), 640)
    for one in (first, second):
        replica.submit(one)
    assert replica.advance(0.3) == [first]
    assert replica.next_start() == pytest.approx(0.67)
    assert replica.advance(0.7) == [second]
    assert second.queue_seconds == pytest.approx(0.47)
    assert second.cached_tokens == 576  # the first one's prefill has ended by then


def test_a_call_waits_until_memory_is_free() -> None:
    replica = Replica("r", prefill_tokens_per_second=100_000, started=0)
    calls = [
        call(0, list(range(1000 * n, 1000 * n + 100)), 6_400, output_tokens=320) for n in range(3)
    ]
    for one in calls:
        replica.submit(one)
    # 105 blocks each: two fit into 256, the third starts when the first ends.
    assert replica.advance(5) == calls[:2]
    assert (replica.running_requests, len(replica.waiting)) == (2, 1)
    assert replica.pool.running_blocks == 210
    assert replica.advance(60) == calls[2:]
    assert calls[2].queue_seconds == pytest.approx(calls[0].ended)


def test_restart_empties_the_cache_and_the_counters() -> None:
    replica = Replica("r", prefill_tokens_per_second=1_000, started=0)
    first = call(0, list(range(10)), 640)
    replica.submit(first)
    replica.advance(0)
    with pytest.raises(ValueError, match="drain it first"):
        replica.restart(0.5, boot_seconds=30, capacity_blocks=100)
    replica.advance(5)
    replica.counters.add(first)
    assert 'prompt_tokens_total{engine="0",model_name="demo-8b"} 640.0' in metric_page(replica)
    replica.restart(5, boot_seconds=30, capacity_blocks=100)
    page = metric_page(replica)
    assert 'prompt_tokens_total{engine="0",model_name="demo-8b"} 0.0' in page
    assert 'num_gpu_blocks="101"' in page
    assert "process_start_time_seconds 5.0" in page

    again = call(6, list(range(10)), 640)
    replica.submit(again)
    assert replica.advance(34) == []
    replica.advance(35)
    assert (again.cached_tokens, again.queue_seconds) == (0, 29.0)


def opened(book: PromptBook, one: Session) -> list[int]:
    book.open(one)
    book.ask(one)
    return one.chain.copy()


def test_sessions_share_what_their_prompts_share() -> None:
    book = PromptBook(Random(1))
    with_document = Template("t", "chat", "v1", 1, 650, 64, 16, document_tokens=500)
    oak, oak_again = (opened(book, session(with_document)) for _ in range(2))
    fir = opened(book, session(with_document, tenant="fir"))
    assert oak[:10] == oak_again[:10] == fir[:10]  # 650 tokens of system text: 10 whole blocks
    assert oak[10] == oak_again[10]  # the document is the tenant's
    assert not set(oak[10:]) & set(fir[10:])
    assert oak[-1] != oak_again[-1]


def test_next_turn_extends_prompt_and_answer() -> None:
    book = PromptBook(Random(1))
    one = session()
    first = opened(book, one)
    book.answer(one)
    tokens = book.ask(one)
    assert one.chain[: len(first)] == first
    assert len(one.chain) == tokens // 64


def test_clock_in_front_and_greeting_by_name_share_nothing() -> None:
    book = PromptBook(Random(1))
    clock = Template("t", "chat", "v1", 1, 640, 64, 16, clock=True)
    one = session(clock)
    first = opened(book, one)
    book.answer(one)
    book.ask(one)
    assert not set(first) & set(one.chain)
    changed = Template("t", "chat", "v1", 1, 640, 64, 16, next_version="v2")
    chains = [opened(book, session(changed, version="v2")) for _ in range(2)]
    assert not set(chains[0]) & set(chains[1])


def test_load_has_its_peak_in_the_evening_and_is_low_at_night() -> None:
    end = 1_793_700_000.0  # the fleet's clock shows 17:30
    load = LoadCurve(0.1, end)
    rates = {hour: load.sessions_per_second(end + (hour - 17.5) * 3_600) for hour in range(24)}
    assert max(rates, key=rates.__getitem__) in (19, 20)
    assert min(rates, key=rates.__getitem__) in (2, 3, 4)
    assert {load.template(end, draw / 100).name for draw in range(100)} == {
        template.name for template in TEMPLATES
    }


def test_hit_ratio_falls_after_the_restart() -> None:
    day = 86_400.0
    traffic = Traffic(start=0, end=day, requests_per_second=0.1, seed=2026)
    # A whole day of the smaller cache: what is asked of one replica within hours is left to chance.
    calls = [
        one
        for one in traffic.advance(2 * day)
        if one.replica and one.template.source != LEGACY_GATEWAY
    ]

    def ratio(replica: str, since: float, until: float) -> float:
        own = [c for c in calls if c.replica == replica and since <= c.arrived < until]
        return sum(c.cached_tokens for c in own) / sum(c.prompt_tokens for c in own)

    restart = traffic.story.restart
    names = [replica.name for replica in traffic.replicas]
    before = {name: ratio(name, 0, restart) for name in names}
    after = {name: ratio(name, restart, 2 * day) for name in names}
    assert after["replica-2"] < before["replica-2"] - 0.1
    for replica in ("replica-0", "replica-1", "replica-3"):
        assert after[replica] > after["replica-2"] + 0.05


def test_a_new_version_puts_a_greeting_before_the_same_document() -> None:
    book = PromptBook(Random(1))
    desk = Template("t", "chat", "v1", 1, 640, 64, 16, document_tokens=500, next_version="v2")
    old, new, again = session(desk), session(desk, version="v2"), session(desk, version="v2")
    for one in (old, new, again):
        book.open(one)
    assert new.tokens == again.tokens == old.tokens + 40
    assert text_of(new.chain[0]) != text_of(again.chain[0])
    # Behind the greeting all is the same text, and nothing of it can be reused.
    assert [*map(text_of, new.chain[1:])] == [*map(text_of, again.chain[1:])]
    assert not set(new.chain) & set(again.chain)


def test_traffic_does_not_depend_on_how_its_clock_is_advanced() -> None:
    def traffic() -> Traffic:
        return Traffic(start=0, end=86_400, requests_per_second=0.1, seed=5)

    at_once = traffic().advance(86_400)
    in_steps = traffic()
    calls = [one for minute in range(1, 1_441) for one in in_steps.advance(minute * 60)]
    assert len(calls) == len(at_once) > 5_000
    assert [(c.number, c.attempt, c.ended, c.cached_tokens, c.replica) for c in calls] == [
        (c.number, c.attempt, c.ended, c.cached_tokens, c.replica) for c in at_once
    ]
    assert [c.ended for c in calls] == sorted(c.ended for c in calls)
