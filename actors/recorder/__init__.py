"""EventRecorder, an actor: writes Kubernetes Events about the driver's pod, or about its Lease, for `kubectl describe`.

It receives the messages of `ToEventRecorder` from the Backend and sends none. `occurrences` decides what becomes an
Event, `book` counts alike occurrences together in a bounded number of Events, `event` writes them as JSON. No other
actor waits for it, and an Event that cannot be written is dropped.
"""
