"""Why tokens missed, minute by minute: named once, kept as sums, told on /metrics."""
