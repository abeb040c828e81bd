"""Observability for prefix caching in LLM inference."""

__version__ = "0.1.0"
