"""One module per question. Each has `measure(options) -> list[Row]` and runs alone: `python -m benchmarks.measure.requests --quick`."""
