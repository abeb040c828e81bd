"""Entries under `events`: what they may say, and the sockets and names they come to."""

from collections.abc import Mapping
from typing import Any

import pytest

from exporter.blocks.order import StreamName
from exporter.sources.discovery import Target
from exporter.sources.events.endpoints import Endpoint
from exporter.sources.events.settings import EventSettings, leak_of
from exporter.sources.events.subscriptions import Subscription, subscriptions
from prefixscope.settings import load_settings
from prefixscope.settings_file import BadSettings


def entry(**given: object) -> EventSettings:
    return EventSettings.model_validate({"endpoint": "tcp://h:5557", **given})


def opened(*entries: EventSettings, targets: list[Target] | None = None) -> list[Subscription]:
    return subscriptions(entries, targets or [])


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no address": ({"endpoint": "h:5557"}, "must be tcp://HOST:PORT"),
    "no port": ({"endpoint": "tcp://h"}, "must be tcp://HOST:PORT"),
    "port 0": ({"endpoint": "tcp://h:0"}, "must be tcp://HOST:PORT"),
    "port too high": ({"endpoint": "tcp://h:65536"}, "must be tcp://HOST:PORT"),
    "another scheme": ({"endpoint": "udp://h:1"}, "must be tcp://HOST:PORT"),
    "a path too long": ({"endpoint": "ipc://" + "x" * 104}, "at most 103 bytes"),
    "every address to connect to": ({"endpoint": "tcp://*:5557"}, "bind: true"),
    "every IPv6 address": ({"endpoint": "tcp://[::]:5557"}, "bind: true"),
    "replay at every address": ({"replay_endpoint": "tcp://*:5657"}, "name the host"),
    "hosts and a name": (
        {"endpoint": "tcp://{host}:1", "replica": "r"},
        "neither bind nor replica",
    ),
    "hosts to bind": ({"endpoint": "tcp://{host}:1", "bind": True}, "neither bind nor replica"),
    "no ranks": ({"ranks": 0}, "number of ranks from 1 to 1024"),
    "no listed ranks": ({"ranks": []}, "number of ranks from 1 to 1024"),
    "a negative rank": ({"ranks": [0, -1]}, "number of ranks from 1 to 1024"),
    "too many ranks": ({"ranks": 1025}, "number of ranks from 1 to 1024"),
    "a rank twice": ({"ranks": [1, 1]}, "names a rank twice"),
    "no port for the last rank": ({"endpoint": "tcp://h:65535", "ranks": 2}, "no room for rank 1"),
    "ranks over ipc": ({"endpoint": "ipc:///x", "ranks": 2}, "no room for rank 1"),
    "ports that meet": ({"replay_endpoint": "tcp://h:5558", "ranks": 2}, "set them further apart"),
    "the same twice": ({"replay_endpoint": "tcp://h:5557"}, "set them further apart"),
    "an unknown key": ({"endpoints": "x"}, "Extra inputs"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_an_entry_must_not_say(name: str) -> None:
    given, says = WRONG[name]
    with pytest.raises(ValueError, match=says):
        entry(**given)


@pytest.mark.parametrize(
    "text", ["tcp://h:1", "tcp://127.0.0.1:65535", "tcp://[fd00::1]:5557", "ipc:///run/kv",
             "inproc://kv", "tcp://{host}:5557"],
)  # fmt: skip
def test_addresses_are_kept_as_written(text: str) -> None:
    assert str(Endpoint.of(text)) == text


def test_a_rank_is_a_port_further() -> None:
    assert str(Endpoint.of("tcp://h:5557").at_rank(3)) == "tcp://h:5560"
    assert str(Endpoint.of("inproc://kv").at_rank(3)) == "inproc://kv_dp3"
    assert str(Endpoint.of("inproc://kv").at_rank(0)) == "inproc://kv"


def test_one_engine_is_one_socket_named_after_its_address() -> None:
    (one,) = opened(entry(replay_endpoint="tcp://h:5657"))
    assert (str(one.endpoint), str(one.replay), one.rank) == ("tcp://h:5557", "tcp://h:5657", None)
    assert one.stream("any topic", None) == StreamName("events", "h:5557")
    assert one.stream("kv@pod@llama", None) == StreamName("events", "pod", "llama")


def test_a_configured_name_goes_before_the_topic() -> None:
    (one,) = opened(entry(replica="west-1", model="m", source="s"))
    assert one.stream("kv@pod@llama", "10.0.0.1") == StreamName("s", "west-1", "m")


def test_t86_the_fingerprint_of_its_taps_is_known_of_every_stream() -> None:
    (one,) = opened(entry(model_fingerprint="weights-7"))
    assert one.stream("kv@pod@llama", None).model_fingerprint == "weights-7"


def test_ranks_have_ports_and_numbers_of_their_own() -> None:
    found = opened(entry(replica="w", ranks=[1, 3], replay_endpoint="tcp://h:5657"))
    told = [(str(one.endpoint), str(one.replay), one.stream("", None)) for one in found]
    assert told == [
        ("tcp://h:5558", "tcp://h:5658", StreamName("events", "w", None, 1)),
        ("tcp://h:5560", "tcp://h:5660", StreamName("events", "w", None, 3)),
    ]
    unnamed = opened(entry(ranks=2))
    assert [one.stream("", None) for one in unnamed] == [
        StreamName("events", "h:5557", None, 0), StreamName("events", "h:5557", None, 1),
    ]  # fmt: skip


def test_every_scraped_engine_has_its_own_under_its_own_name() -> None:
    targets = [
        Target("a", "http://10.0.0.1:8000/metrics", "pod-a"),
        Target("b", "http://[fd00::2]:8000/metrics", "pod-b"),
    ]
    derived = entry(endpoint="tcp://{host}:5557", replay_endpoint="tcp://{host}:5657", ranks=1)
    found = opened(derived, targets=targets)
    assert [(str(one.endpoint), str(one.replay), one.replica) for one in found] == [
        ("tcp://10.0.0.1:5557", "tcp://10.0.0.1:5657", "pod-a"),
        ("tcp://[fd00::2]:5557", "tcp://[fd00::2]:5657", "pod-b"),
    ]
    assert opened(derived) == []


def test_who_connects_here_is_named_by_topic_or_address() -> None:
    (one,) = opened(
        entry(endpoint="tcp://*:5560", bind=True, replay_endpoint="tcp://{host}:5657", ranks=1)
    )
    assert one.stream("kv@pod@llama", "10.0.0.1") == StreamName("events", "pod", "llama")
    assert one.stream("engine-3", "10.0.0.1") == StreamName("events", "engine-3")
    assert one.stream("", "10.0.0.1") == StreamName("events", "10.0.0.1")
    assert one.stream("", None) == StreamName("events", "*:5560")
    assert str(one.replay_of("10.0.0.1")) == "tcp://10.0.0.1:5657"
    assert one.replay_of(None) is None


@pytest.mark.parametrize("topic", ["kv@", "kv@@m", "kv@\n@m", "kv@" + "x" * 201, "\x00", "y" * 500])
def test_topics_that_cannot_name_anything_are_passed_over(topic: str) -> None:
    (one,) = opened(entry(endpoint="tcp://*:5560", bind=True))
    named = one.stream(topic, "10.0.0.1").replica
    assert named.isprintable()
    assert len(named) <= 200


@pytest.mark.parametrize(
    ("given", "leaks"),
    [
        ({"endpoint": "tcp://127.0.0.1:1"}, None),
        ({"endpoint": "tcp://localhost:1", "replay_endpoint": "tcp://[::1]:2"}, None),
        ({"endpoint": "ipc:///x"}, None),
        ({"endpoint": "tcp://10.0.0.1:1"}, "tcp://10.0.0.1:1 can be reached"),
        ({"endpoint": "tcp://*:1", "bind": True}, "tcp://*:1 can be reached"),
        ({"endpoint": "tcp://{host}:1"}, "tcp://{host}:1 can be reached"),
        ({"endpoint": "ipc:///x", "replay_endpoint": "tcp://h:2"}, "tcp://h:2 can be reached"),
    ],
)  # fmt: skip
def test_where_others_could_listen(given: Mapping[str, object], leaks: str | None) -> None:
    told = leak_of(entry(**given))
    assert (told is None) if leaks is None else (told is not None and told.startswith(leaks))


def test_entries_must_be_apart() -> None:
    def load(*entries: str) -> None:
        load_settings(None, {"PREFIXSCOPE_EVENTS": f"[{', '.join(entries)}]"})

    one = "{endpoint: 'tcp://h:1', replica: a}"
    load(one, "{endpoint: 'tcp://h:2', replica: b}")
    load("{endpoint: 'tcp://h:1', ranks: [0, 1], replica: a}",
         "{endpoint: 'tcp://i:1', ranks: [2, 3], replica: a}")  # fmt: skip
    with pytest.raises(BadSettings, match="two entries read tcp://h:1"):
        load(one, "{endpoint: 'tcp://h:1', replica: b}")
    with pytest.raises(BadSettings, match="name the replica 'a'"):
        load(one, "{endpoint: 'tcp://h:2', replica: a}")
