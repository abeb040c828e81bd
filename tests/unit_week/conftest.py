"""Pages are opened as in tests/unit_dashboard, over the same loopback exporter."""

from tests.unit_dashboard.conftest import exporter, open_page

__all__ = ["exporter", "open_page"]
