"""What a stop deletes: the fleet's pods, then its claims.

It takes the answers of the RequestPool and lists of its own, and asks the pool for DELETEs of what is this fleet's, and
of nothing else that carries its labels. It never decides when: the `Shutdown` has the order of a stop.
"""
