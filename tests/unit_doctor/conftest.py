from collections.abc import Mapping

import duckdb
import pyarrow as pa

from queries import registry
from tests.unit_queries.conftest import cursor, insert

__all__ = ["Answers", "cursor", "insert"]


class Answers:
    """Whoever has the tables of the test."""

    where = "a test"

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def ask(self, name: str, params: Mapping[str, object]) -> pa.Table:
        return registry.run(self._cursor.cursor(), name, params)
