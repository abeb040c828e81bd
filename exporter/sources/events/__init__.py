"""KV-cache events as engines publish them: live over ZeroMQ, and recorded in files.

`frames` says what a message looks like, `settings` and `subscriptions` which are wanted,
`follower` (with `replaying`) what one stream needs, without a socket: gaps, replays, restarts;
`sockets` and `worker` (with `hearing`) bring the two together in one thread, `keeper` brings what
was learnt into the store, and `recorded` takes files in. What the events mean is the business of
`exporter.blocks`.
"""
