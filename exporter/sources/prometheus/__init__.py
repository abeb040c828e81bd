"""A Prometheus as a source: the past of engines, or their pages in place of our own scraper."""
