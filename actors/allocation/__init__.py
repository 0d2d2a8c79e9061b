"""The Allocator actor: keeps each profile at its target number of executors.

It receives batches from the SnapshotStore, targets and the ledger from the Backend, and answers from the RequestPool.
It sends creates and deletes to the RequestPool, and tells the Backend what it requested, abandoned or scaled down, and
why creation is blocked. It never calls the API itself, and never reports an executor's end.
"""
