"""What comes from outside, as bad as it can be: only errors that are documented, and no secret in their words."""
