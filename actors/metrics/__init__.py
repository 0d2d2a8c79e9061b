"""The counters of a fleet, and their export to Prometheus.

Actors count into the objects of `counts`, without messages; each has one writer. `prometheus` reads them at a scrape
and asks each Backend for its status (`GetFleetStatus`). Only `prometheus` imports the Prometheus client; no decision
depends on a count.
"""
