"""What each actor counts, and how Prometheus reads it. Only `prometheus` imports the Prometheus client."""
