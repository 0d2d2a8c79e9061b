"""Fault injection: `FaultyPodApi` wraps any `PodApi` and fails as networks and servers do, by script or by chance.

Requests pass through it to the wrapped API, and may be refused, delayed, stalled or repeated from a cache; answers and
events may be lost or late. It never produces an outcome that a real network and server could not.
"""
