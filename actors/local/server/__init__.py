"""The embedded cluster's HTTPS server: the Kubernetes API for kubectl and the HTTP client.

Authorised requests come in; each becomes one call of the object store, or reads a container's log. Objects, Tables,
watch streams and `Status`es go out. No rule about objects is here, and no request is handled without the token.
"""
