"""LeaseKeeper, an actor, and the Backend's permission to write.

LeaseKeeper owns the application's Lease, so that only one of two drivers with the same `app_id` writes. It receives
`KeepLease`, `IdsAllocated` and `ReleaseLease`; it sends the Backend `LeaseHeld`, `LeaseNotHeld` and `LeaseReleased`. It
changes no pod and stops no actor; it reads the pod of another holder. `WritePermission`, a plain object of the Backend,
decides from these messages what may be written and created.
"""
