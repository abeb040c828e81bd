from tests.log_path import store
from tests.unit_cli.conftest import cli

__all__ = ["cli", "store"]
