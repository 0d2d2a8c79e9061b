"""Complete drivers, as users write them. They use only what users can import, and run on the embedded cluster.

Start one with `python -m actors.examples.pi`.
"""
