"""Whoever judges in the background goes on after any error."""

import threading

from exporter.errors import PrefixscopeError
from exporter.judge_watch import JudgeWatch


class Watch(JudgeWatch):
    """Fails in its own ways at first, and then judges."""

    def __init__(self) -> None:
        super().__init__("a judgement")
        self.errors: list[Exception] = [
            PrefixscopeError("no memory"),
            ValueError("odd"),
            KeyError("x"),
        ]
        self.failures, self.went_on = 0, threading.Event()

    def pause_seconds(self) -> float:
        return 0.001

    def judge_once(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.went_on.set()

    def failed(self) -> None:
        self.failures += 1


def test_it_goes_on_after_any_error() -> None:
    watch = Watch()
    begun = watch.judged_at
    watch.start()
    assert watch.went_on.wait(30)
    assert watch.alive
    watch.stop()
    assert watch.failures == 3
    assert watch.judged_at > begun
