"""The fleet's process: a child process with the children that observe the fleet and write to it.

A driver that computes keeps its interpreter: what crosses is what the Backend is told, not what is observed. It stays
with the Backend which executors there are, so none is lost with the process. `fleet_process` is the side of the
Backend and its driver, which makes one `incarnation` after another; `fleet` is the other side. `frames` is what they
send each other over a socketpair.
"""
