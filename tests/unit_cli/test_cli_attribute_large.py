"""Chains are the largest thing a question returns: they are read without a sort, in any order."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from exporter.store.store import Store
from prefixscope.chain_rows import parts_of, taken
from queries import registry
from tests.log_path import SMALL

BLOCKS, ROWS = 4000, 1000


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """32 MB of chains, of which the row that came first is stored last."""
    store = Store.open(tmp_path_factory.mktemp("large") / "store", SMALL)
    with store.write() as cursor:
        cursor.execute(
            "INSERT INTO requests BY NAME SELECT TIMESTAMP '2026-03-02 12:00:00' AS ts,"
            " ts AS arrived, 's' AS source, 'f' AS source_format, 1 AS attempt, 'ok' AS status,"
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
    (part,) = parts_of(table, None, None)
    came = [(table["batch"][row].as_py(), table["position"][row].as_py()) for row in part.rows]
    assert came == sorted(came)
    assert came[0] == (1, 2)


def test_rows_that_are_all_taken_are_not_copied(chains: Store) -> None:
    table = asked(chains, "64MB").select(["batch", "position"])
    whole = pa.array(range(ROWS)).to_numpy()
    assert taken(table, whole) is table
    assert taken(table, whole[::-1])["batch"].to_pylist() == table["batch"].to_pylist()[::-1]
    assert taken(table, whole[:3])["batch"].to_pylist() == table["batch"].to_pylist()[:3]
