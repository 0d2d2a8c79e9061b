"""SnapshotStore, and the rules by which lists and events are merged."""
