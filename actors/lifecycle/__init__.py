"""LifecycleManager: reports what became of each executor, and removes the pods of those that ended.

It receives batches of the SnapshotStore, the ledger, and the driver's intents through the Backend. It sends
`ExecutorSeen`, `RemoveExecutor` and `StuckObserved` to the Backend, and deletes, labels and adoptions to the
RequestPool. It never creates a pod, and never decides how many executors there should be.
"""
