from tests.unit_queries.conftest import cursor, insert

__all__ = ["cursor", "insert"]
