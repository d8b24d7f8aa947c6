"""The other driver: the same flows on an event heap, with upstreams that follow a script."""
