"""The command `executor-pods`: runs a fleet, or the embedded cluster, from a terminal.

It is a user of the library: its driver starts a Backend and turns the messages to drivers into events, which are shown
as a live table, as lines or as JSON. It never calls the Kubernetes API itself. Needs the extra `cli`.
"""
