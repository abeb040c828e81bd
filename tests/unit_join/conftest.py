from tests.log_path import shared_store, store

__all__ = ["shared_store", "store"]
