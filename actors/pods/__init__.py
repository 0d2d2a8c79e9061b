"""What a pod says: its typed projection, its state, why it is stuck, why it ended, and the snapshot of all."""
