"""`PodApi` over HTTP, on the `kubernetes` package's transport."""
