"""`make demo-engine`: a real vLLM on the CPU, with traffic, seen by an ordinary exporter.

The model has random weights and is made on the spot, so its answers are word salad. What the
engine caches, evicts, counts and publishes is real.
"""
