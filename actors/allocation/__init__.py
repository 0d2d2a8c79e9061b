"""Allocator: keeps each profile at its target."""
