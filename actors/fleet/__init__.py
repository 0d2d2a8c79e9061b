"""The door for programs that are no actors: `Fleet` for threads, `AsyncFleet` for asyncio. Both behave the same.

The room owns one actor (`FleetOwner`), which owns the Backend, follows the fleet and receives its messages, and what
other threads read of it: the view of the fleet and bounded streams of events. It sends the Backend what a driver may
send, and nothing else. It never talks to another actor of the library, nor to the API.
"""
