"""What a fleet's program leases: how it waits for an executor, what it holds, and how it gives it back.

The owner of the fleet notes here what the Backend grants, refuses and ends; any thread reads it. Which executor is
leased to whom is the Backend's to decide.
"""
