"""The page with synthetic fleets, to look at and to test."""
