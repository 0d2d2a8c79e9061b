"""What every test may use."""

pytest_plugins = ["actors.testing.plugin"]
