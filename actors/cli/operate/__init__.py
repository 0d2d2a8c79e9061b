"""The commands for operators: see, ask and mend a fleet from outside, whether its driver lives or not.

They read and change pods, Leases and claims with the operator's own account (`inspection`), and never start a Backend.
Only `scale`, `retire`, `kill`, `hold` and `resume` speak with the driver, over HTTP, if it serves its page.
"""
