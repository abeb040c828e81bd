"""What doctor says of KV-cache events, and the flags it names."""

import json
import shlex

import pytest
import yaml

from exporter.sources.events.settings import EventSettings
from prefixscope.doctor.events import check_events
from prefixscope.doctor.facts import EventFacts, Facts, StreamFacts, TargetFacts
from prefixscope.doctor.findings import Finding, Severity
from prefixscope.event_flags import FLAG, event_setup

OK, NOTE, WARNING, FAULT = Severity
ENGINE = TargetFacts("v", "http://10.0.0.5:8000/metrics", engine="vllm", replicas=("v",))
ENTRY = EventFacts("tcp://10.0.0.5:5557", "events", replays=True)
STREAM = StreamFacts("events", "v", connected=True, batches=7)
ASKED = "the exporter at http://x"


def told(*streams: StreamFacts, entry: EventFacts = ENTRY, **more: object) -> list[Finding]:
    given: dict[str, object] = {
        "targets": (ENGINE,), "events": (entry,), "streams": streams, "asked": ASKED, **more,
    }  # fmt: skip
    return list(check_events(Facts(**given)))  # type: ignore[arg-type]


def test_all_in_order() -> None:
    (found,) = told(STREAM)
    assert (found.severity, found.where) == (OK, "v")
    assert "7 batches of events heard, the state is complete" in found.says


def stream(**given: object) -> StreamFacts:
    usual = {"source": "events", "replica": "v", "connected": True, "batches": 7}
    return StreamFacts(**{**usual, **given})  # type: ignore[arg-type]


CASES = {
    "not connected": (stream(connected=False), "events-heard", FAULT, "no publisher is connected"),
    "silent": (stream(batches=0), "events-heard", WARNING, "not one batch has come"),
    "uncertain": (stream(uncertain="batches 3 to 5"), "events-whole", WARNING, "batches 3 to 5"),
    "unreadable": (stream(unreadable_batches=3), "events-whole", WARNING, "3 messages"),
    "of another name": (stream(scraped=False), "events-heard", NOTE, "no metric page"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_with_a_stream(name: str) -> None:
    heard, check, severity, says = CASES[name]
    (found,) = [finding for finding in told(heard) if finding.severity > OK]
    assert (found.check, found.severity) == (check, severity)
    assert says in found.says
    assert found.fix


def test_a_stream_that_is_not_there_at_all() -> None:
    found = told(targets=())
    assert [(f.check, f.severity) for f in found] == [("events-heard", FAULT)]


def test_nobody_listens_where_no_exporter_runs() -> None:
    """Then it is the exporter that is missing, and that is said elsewhere."""
    found = told(stream(connected=False), exporter_error="no exporter answers")
    assert [f for f in found if f.severity > OK] == []


def test_what_was_recorded_or_is_configured_no_more_is_not_missed() -> None:
    recorded = StreamFacts("file", "evict", connected=False, batches=171)
    (found,) = told(recorded, targets=(), events=())
    assert found.severity is OK


def test_without_replay_and_open_to_others() -> None:
    entry = EventFacts("tcp://10.0.0.5:5557", "events", replays=False, leak="it can be reached")
    found = {f.check: f for f in told(STREAM, entry=entry)}
    assert found["events-open"].severity is WARNING
    notes = [f for f in told(STREAM, entry=entry) if f.severity is NOTE]
    assert [f.check for f in notes] == ["events-whole"]
    assert f"add replay_endpoint to the engine's {FLAG}" in notes[0].fix


def test_an_engine_beside_others_whose_events_nobody_takes() -> None:
    other = TargetFacts("w", "http://10.0.0.6:8000/metrics", engine="sglang", replicas=("w",))
    found = [f for f in told(STREAM, targets=(ENGINE, other)) if f.severity > OK]
    assert [(f.check, f.severity, f.where) for f in found] == [("kv-events", NOTE, "w")]
    derived = EventFacts("tcp://{host}:5557", "events", replays=True, derived=True)
    assert not [f for f in told(STREAM, entry=derived, targets=(ENGINE, other)) if f.severity > OK]
    llama = TargetFacts("l", "http://10.0.0.7:8080/metrics", engine="llamacpp", replicas=("l",))
    assert not [f for f in told(STREAM, targets=(ENGINE, llama)) if f.severity > OK]


@pytest.mark.parametrize(
    ("engine", "url", "replicas"),
    [
        ("vllm", "http://10.0.0.5:8000/metrics", ("v",)),
        ("vllm", "http://127.0.0.1:8000/metrics", ("local",)),
        ("vllm", "http://[fd00::1]:8000/metrics", ("six",)),
        ("vllm", "http://10.0.0.5:8000/metrics", ("v/0", "v/1", "v/2")),
        ("sglang", "http://10.0.0.5:30000/metrics", ("s",)),
    ],
)
def test_flag_and_entry_fit_each_other(engine: str, url: str, replicas: tuple[str, ...]) -> None:
    """The flag is what a shell takes, the entry what our settings take, and both meet."""
    setup = event_setup(engine, url, replicas)
    assert setup is not None
    name, text = shlex.split(setup.flag)
    engine_side = json.loads(text)
    assert (name, engine_side["publisher"]) == (FLAG, "zmq")
    assert engine_side.get("enable_kv_cache_events") is (True if engine == "vllm" else None)
    (entry,) = yaml.safe_load(setup.entry_text)["events"]
    ours = EventSettings.model_validate(entry)
    # Engines listen at endpoints with * or ::, and connect to any other.
    engine_listens = "*" in engine_side["endpoint"]
    assert ours.bind is not engine_listens
    assert ours.published.port == int(engine_side["endpoint"].rpartition(":")[2])
    assert ours.replica == replicas[0].partition("/")[0]
    assert len(ours.rank_list) == len(replicas)


def test_on_this_machine_nobody_else_can_listen() -> None:
    setup = event_setup("vllm", "http://127.0.0.1:8000/metrics", ("local",))
    assert setup is not None
    assert "*" not in setup.flag
    ours = EventSettings.model_validate(setup.entry)
    assert ours.published.is_private
    assert ours.replayed is not None
    assert ours.replayed.is_private


def test_engines_without_such_events() -> None:
    assert event_setup("llamacpp", "http://h:1", ()) is None
    assert event_setup(None, None, ()) is None
