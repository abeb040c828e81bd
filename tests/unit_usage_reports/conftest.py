from tests.log_path import store

__all__ = ["store"]
