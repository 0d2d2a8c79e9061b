"""SnapshotStore: the current snapshot of all executor pods, and the rules that merge lists and events into it.

In come `UpdatePods`, `ReplaceSnapshot` and `StreamAbandoned` from the sources, `AddSubscriber` and `BatchDone` from the
subscribers. Out go `SnapshotBatch` to each subscriber and `Relist` to WatchSource. The store never calls the Kubernetes
API and never decides what happens to a pod.
"""
