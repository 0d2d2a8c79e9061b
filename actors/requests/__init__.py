"""RequestPool: the only actor that writes to the Kubernetes API.

It receives `CreatePod`, `DeletePod`, `DeletePods`, `LabelPod`, `AdoptPod`, `ConfirmPod` and `ListClaims`, sends each
until the answer is final, and reports that answer once (`PodCreated`, `PodCreateFailed`, `PodsDeleted`, `PodConfirmed`,
`ClaimsListed`). It bounds how many requests are in flight, paces and retries them by timer. It never decides which pods
there should be.
"""
