"""The load tester: counts tokens, keeps to its schedule, and says when it was itself the bottleneck.

A run from file to file: `planning` makes the plan that `load_options` asks for, `running` carries it out. `fleet` starts client processes
and speaks to them in `frames`; in each, `client` has `dispatch` send when it is time, `exchange` carry out one request, and `reading` make
sense of its answer (`chunks`), which becomes a `sample`. Back in `running`, `outcome` judges each sample, `figures` counts it, `validity`
says whether the run counts, `run_report` sums up, and `outputs` writes.
"""
