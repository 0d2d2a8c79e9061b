"""LeaseKeeper, and what a Backend must hold before it may write."""
