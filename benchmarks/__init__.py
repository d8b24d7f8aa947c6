"""Measurements of Tidegate beside other gateways, in one run: `make bench`, or `python -m benchmarks.run`.

`measure` has one module, and one command, per question; `load` has the clients and upstreams that they use, each a process of its own;
`subjects` starts ours, `peers` the others, which `install` brings. Every measurement prints JSON lines (`rows.Row`). The figure to trust
on a machine that others use is the CPU time of a gateway's processes, and its ratio to a peer's in the same round; requests per second
are not.
"""
