"""A real cluster on one machine: scripts, and the images that its nodes run."""
