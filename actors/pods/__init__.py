"""What a pod's JSON means: the typed `Pod`, its state, why it is stuck, why it ended, and snapshots of the fleet.

Values and pure functions only. This room knows no actor, no message and no API.
"""
