"""What an object may look like: resources, fields and their JSON types, selectors, and the `Status` of every refusal.

Called by the store and the server, with a request's JSON; returns a checked copy or raises `ApiStatus`. This room keeps
no state and never changes what it is given.
"""
