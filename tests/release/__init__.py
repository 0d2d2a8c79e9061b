"""A release, rehearsed: `python -m tests.release` does all of it but what a person must do."""
