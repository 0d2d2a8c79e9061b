"""Benchmarks: `python -m tests.benchmarks`. Nothing here is asserted; see README.md for what the rows mean."""
