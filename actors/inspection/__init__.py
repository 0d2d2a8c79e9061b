"""What fleets there are, from outside: read from their labelled pods and their Leases, with or without a driver.

It receives and sends no message of the actors: a program passes it a function that asks the API, and gets values. What
it reads may be of a driver that is dead, of another version, or edited by hand: an unusable field is None, never an
error. It changes nothing, except that `cleanup` makes the requests that delete an orphaned fleet.
"""
