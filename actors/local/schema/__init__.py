"""What objects look like: resources, fields, selectors, statuses."""
