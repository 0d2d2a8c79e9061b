"""The embedded cluster's objects, and the rules of the Kubernetes API about them.

Called by the server, the in-process API, the kubelets and tests, through `object_store.ObjectStore`; answers with
objects, or raises `ApiStatus`, and sends watch messages to listeners. This room knows neither HTTP nor processes, and
never does what a real API server does not.
"""
