"""Measurements of Tidegate beside nginx and vllm-router, in one run: `make bench`, or `python -m benchmarks.run`.

`measure` has one module, and one command, per question; `load` has the clients and upstreams that they use, each a process of its own;
`subjects` starts what is measured. Every measurement prints JSON lines (`rows.Row`). The figure to trust on a machine that others use is
the CPU time of a gateway's processes, and its ratio to a peer's in the same round; requests per second are not.
"""
