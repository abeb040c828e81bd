"""KV-cache events as engines publish them: live over ZeroMQ, and recorded in files.

`frames` says what a message looks like, `settings` and `streams` which messages are wanted,
`follower` what one stream needs (gaps, replays, restarts) without a socket, `sockets` and
`worker` bring the two together in one thread, `keeper` brings what was learnt into the store, and
`recorded` reads files. What the events mean is the business of `exporter.blocks`.
"""
