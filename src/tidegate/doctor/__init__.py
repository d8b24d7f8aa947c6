"""What is wrong, and what to do: judged out of what others have read.

Nothing here does I/O or reads a clock. `machine`, `services` and `upstreams` judge observations; `causes` is the table from symptoms to
causes, which `symptoms` searches and puts to the records; `story` explains one request.
"""
