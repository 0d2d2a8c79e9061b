"""WatchSource and PollSource: they observe the executor pods of the cluster.

In come `StartWatching`, `StartPolling` and `RetryNow` from Backend, and `Relist` from Backend and SnapshotStore. Out go
`ReplaceSnapshot`, `UpdatePods` and `StreamAbandoned` to SnapshotStore, and `Freshness` and `Polled` to Backend. The
sources only read: they never write to the API and keep no pods.
"""
