"""LiteLLM's database as a source: its spend logs, and its daily tables beside them."""
