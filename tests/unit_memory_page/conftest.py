from tests.unit_dashboard.conftest import exporter, open_page

__all__ = ["exporter", "open_page"]
