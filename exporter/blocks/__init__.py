"""What KV caches hold, as their engines' events tell it.

`wire` reads a batch of events, `chains` gives its blocks names of our own, `order` sees gaps,
repetitions and restarts in the numbers of a stream, `residency` keeps one cache, `tiers` all
caches of one replica, `contents` what they hold together, and `tracker` is the door for the rest
of the exporter: batches go in, `rows` for the store and a `snapshot` for /metrics come out.
"""
