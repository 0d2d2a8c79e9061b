"""The observer: a child process that talks to the API server, so that a driver that computes keeps its interpreter.

`pod_api` is the driver's side, `child` the other one; `frames` is what they send each other over a socketpair, and
`pod_table` names pods by numbers, so that only news cross.
"""
