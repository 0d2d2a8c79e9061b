"""Threads: how each of the library's is started, and those in which functions of the program run.

A thread that cannot be started is an error that says which limit was met. A function of the program that blocks holds
up its own thread, never an actor.
"""

from actors.runtime.threads.program import AtOnce, Calls, Courier, TookTooLong, call_within
from actors.runtime.threads.start import in_words, start_thread

__all__ = ["AtOnce", "Calls", "Courier", "TookTooLong", "call_within", "in_words", "start_thread"]
