"""Chains are the largest thing a question returns: read without a sort, and within free memory."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from exporter.causes.rows import parts_of
from exporter.errors import PrefixscopeError
from exporter.store.store import Store
from prefixscope.chain_window import (
    EXPORTER_HASHES,
    HORIZON,
    WORKING_BYTES_PER_HASH,
    Room,
    Window,
    ask_chains,
    free_bytes,
)
from prefixscope.client import Exporter, OpenStore
from queries import registry
from replay.chain_rows import taken
from tests.log_path import SMALL

BLOCKS, ROWS = 4000, 1000


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """32 MB of chains, of which the row that came first is stored last."""
    store = Store.open(tmp_path_factory.mktemp("large") / "store", SMALL)
    with store.write() as cursor:
        cursor.execute(
            "INSERT INTO requests BY NAME"
            " SELECT TIMESTAMP '2026-03-02 12:00:00' + to_minutes(i) AS ts, ts AS arrived,"
            " 's' AS source, 'f' AS source_format, 1 AS attempt, 'ok' AS status,"
            " 'miss' AS outcome, 'inclusive' AS prompt_basis, $rows - i AS position,"
            " 1 + i % 2 AS batch, $blocks * 16 AS prompt_tokens, 0 AS cached_tokens,"
            " range($blocks)::UBIGINT[] AS block_hashes, 'global' AS hash_scope"
            " FROM range($rows) t(i)",
            {"rows": ROWS, "blocks": BLOCKS},
        )
    store.cursor().execute("CHECKPOINT")
    yield store
    store.close()


def asked(store: Store, memory_limit: str) -> pa.Table:
    store.cursor().execute(f"SET memory_limit = '{memory_limit}'")
    return registry.run(store.cursor(), "request_chains", {})


def test_chains_are_read_in_little_more_memory_than_they_take(chains: Store) -> None:
    table = asked(chains, "64MB")
    assert len(table) == ROWS
    (part,) = parts_of(table)
    came = [(table["batch"][row].as_py(), table["position"][row].as_py()) for row in part.rows]
    assert came == sorted(came)
    assert came[0] == (1, 2)


def test_rows_that_are_all_taken_are_not_copied(chains: Store) -> None:
    table = asked(chains, "64MB").select(["batch", "position"])
    whole = pa.array(range(ROWS)).to_numpy()
    assert taken(table, whole) is table
    assert taken(table, whole[::-1])["batch"].to_pylist() == table["batch"].to_pylist()[::-1]
    assert taken(table, whole[:3])["batch"].to_pylist() == table["batch"].to_pylist()[:3]


def test_chains_beyond_free_memory_are_refused_with_a_remedy(chains: Store) -> None:
    chains.cursor().execute("SET memory_limit = '64MB'")
    answers, needed = OpenStore(chains), ROWS * BLOCKS * WORKING_BYTES_PER_HASH
    everything = ask_chains(answers, Window(), Room.of(answers, needed))
    assert len(everything.table) == ROWS
    with pytest.raises(
        PrefixscopeError, match=r"4,000,000 hashes, .* 3,999,999: narrow .* --until"
    ):
        ask_chains(answers, Window(), Room.of(answers, needed - 1))


def test_an_exporter_is_not_asked_for_more_than_it_can_hold() -> None:
    exporter, plenty = Exporter("http://127.0.0.1:9"), 2 * EXPORTER_HASHES * WORKING_BYTES_PER_HASH
    for free in (plenty, None):
        assert Room.of(exporter, free).hashes == EXPORTER_HASHES
    assert Room.of(exporter, plenty // 4).hashes == EXPORTER_HASHES // 2


def test_history_is_as_long_as_memory_allows(chains: Store) -> None:
    """A request a minute: 100 in the window, an hour before it is 60 more, a day all 900."""
    chains.cursor().execute("SET memory_limit = '64MB'")
    window = Window.of("2026-03-03T03:00:00Z", None)
    for rows, read in ((1000, 1000), (999, 160), (160, 160), (159, 100), (100, 100)):
        found = ask_chains(OpenStore(chains), window, Room(rows * BLOCKS))
        assert len(found.table) == read
    with pytest.raises(PrefixscopeError, match="narrow the window"):
        ask_chains(OpenStore(chains), window, Room(99 * BLOCKS))


def test_a_store_with_too_little_memory_is_an_error_to_read(chains: Store) -> None:
    chains.cursor().execute("SET memory_limit = '24MB'")
    with pytest.raises(PrefixscopeError, match=r"memory limit: narrow .* --since"):
        ask_chains(OpenStore(chains), Window(), Room(None))


def test_free_memory_is_the_machines_or_the_containers(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) is None
    group, machine = tmp_path / "sys/fs/cgroup", tmp_path / "proc"
    group.mkdir(parents=True)
    machine.mkdir()
    (machine / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    4000 kB\nHugePages: 0\n")
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("1000000\n")
    assert free_bytes(tmp_path) == 4_096_000
    (group / "memory.max").write_text("3000000\n")
    assert free_bytes(tmp_path) == 2_000_000


def test_a_window_begins_no_earlier_than_time_does() -> None:
    first = Window.of("0001-01-02", None).after(HORIZON)
    assert str(first.since) == "0001-01-01 00:00:00"
    assert Window.of(None, "2026-03-02").after(HORIZON).since is None
