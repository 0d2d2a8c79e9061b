"""Complete drivers, as a user would write them. Each runs on the embedded cluster: `python -m actors.examples.pi`."""
