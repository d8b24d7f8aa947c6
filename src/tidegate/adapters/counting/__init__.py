"""Counting tokens away from the event loop: one process per node has the vocabulary, workers ask it over a Unix socket.

`service` answers `ports.TokenCounter`, `client` speaks to the process, `process` is its main. The worker's side imports only the
standard library and msgspec.
"""
