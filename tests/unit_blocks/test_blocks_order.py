"""Numbers of a stream: gaps, repetitions and new beginnings."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.blocks.order import Heard, Order, digest


def test_numbers_in_order_are_applied() -> None:
    order = Order()
    assert [order.place(number, 7, False) for number in range(5)] == [Heard.APPLIED] * 5


def test_t29_a_jump_of_the_number_is_a_gap_of_so_many_batches() -> None:
    order = Order()
    for number in range(6):
        order.place(number, 1, False)
    assert order.place(9, 1, False) is Heard.GAP
    assert order.missing == range(6, 9)
    assert order.place(6, 1, True) is Heard.APPLIED
    assert order.missing == range(7, 9)
    assert [order.place(number, 1, True) for number in (7, 8)] == [Heard.APPLIED] * 2
    assert not order.missing
    assert order.place(9, 1, False) is Heard.APPLIED


def test_a_gap_that_was_given_up_is_passed_over_once() -> None:
    order = Order()
    order.place(0, 1, False)
    assert order.place(4, 1, False) is Heard.GAP
    order.give_up()
    assert order.place(4, 1, False) is Heard.APPLIED
    assert order.place(9, 1, False) is Heard.GAP


def test_a_first_batch_in_the_middle_is_a_gap_from_the_beginning() -> None:
    order = Order()
    assert order.place(7, 1, False) is Heard.GAP
    assert order.missing == range(7)


def test_the_same_batch_again_is_a_repetition_and_another_a_restart() -> None:
    order = Order()
    for number in range(4):
        order.place(number, 100 + number, False)
    assert order.place(2, 102, False) is Heard.REPEATED
    assert order.place(2, 102, True) is Heard.REPEATED
    assert order.place(0, 999, False) is Heard.RESTARTED
    assert order.last == 0


def test_a_restart_whose_beginning_was_missed_waits_for_it() -> None:
    order = Order()
    for number in range(9):
        order.place(number, 100 + number, False)
    assert order.place(3, 999, False) is Heard.RESTARTED
    assert order.missing == range(3)
    assert order.place(0, 996, True) is Heard.APPLIED


def test_of_a_batch_too_old_to_remember_the_way_it_came_decides() -> None:
    order = Order()
    for number in range(20_000):
        order.place(number, 1, False)
    assert order.place(5, 1, True) is Heard.REPEATED
    assert order.place(5, 1, False) is Heard.RESTARTED


def test_a_replay_that_brings_a_given_up_batch_late_changes_nothing() -> None:
    order = Order()
    order.place(0, 1, False)
    order.give_up()
    order.place(5, 1, False)
    assert order.place(3, 77, True) is Heard.REPEATED


def test_a_digest_tells_payloads_apart_and_is_never_zero() -> None:
    assert digest(b"a") != digest(b"b")
    assert digest(b"a") == digest(b"a") > 0


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), max_size=60))
def test_what_is_applied_of_one_process_is_always_a_run_without_holes(
    messages: list[tuple[int, int]],
) -> None:
    """Whatever comes: numbers applied since the last restart are 0, 1, 2 … in order."""
    order, applied = Order(), list[int]()
    for number, process in messages:
        heard = order.place(number, 1000 * (process + 1) + number, False)
        if heard is Heard.RESTARTED:
            applied = []
        if heard is not Heard.REPEATED and order.last == number:
            applied.append(number)
        assert applied == list(range(len(applied)))
        assert order.expected == len(applied)
