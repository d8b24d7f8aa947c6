"""Joins the parts: the only package that knows every adapter. `worker` makes one worker's data plane of a configuration."""
