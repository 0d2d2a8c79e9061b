"""Fault injection: a wrapper around any `PodApi`."""
