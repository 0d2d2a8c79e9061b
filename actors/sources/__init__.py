"""WatchSource and PollSource: what observes the cluster."""
