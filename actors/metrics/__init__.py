"""The counters of a fleet, their export to Prometheus, and spans of its executors by OpenTelemetry.

Actors count into the objects of `counts`, without messages; each has one writer. `prometheus` reads them at a scrape
and asks each Backend for its status (`GetFleetStatus`). Only `prometheus` imports the Prometheus client, only
`spans` OpenTelemetry; no decision depends on a count.
"""
