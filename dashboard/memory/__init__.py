"""The tabs of the page Memory, and what they say where KV-cache events or tiers are missing."""
