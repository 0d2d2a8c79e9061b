"""What every test may use."""

from hypothesis import settings

pytest_plugins = ["actors.testing.plugin"]

settings.register_profile("suite", deadline=None, derandomize=True)  # no wall clock, and every run the same
settings.load_profile("suite")
