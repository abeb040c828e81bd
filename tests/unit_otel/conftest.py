from tests.log_path import shared_store, store
from tests.unit_otel.spans import house

__all__ = ["house", "shared_store", "store"]
