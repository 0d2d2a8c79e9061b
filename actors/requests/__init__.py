"""RequestPool: the only writer to the API."""
