"""What a driver does with its tasks: who works on which, and whether a task may run again after a loss.

`TaskQueue` hands tasks out again when their executor is lost; `Attempts` counts the losses of one task. Both are values
without a thread, a clock or a connection, for an actor, a thread and a coroutine alike. They never talk to a fleet.
"""
