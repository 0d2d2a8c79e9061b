"""The command `executor-pods`."""
