"""Benchmarks: `python -m tests.benchmarks`. They assert nothing; README.md explains the rows."""
