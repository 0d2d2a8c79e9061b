"""The object store: versions, watches, deletion, quota, validation."""
