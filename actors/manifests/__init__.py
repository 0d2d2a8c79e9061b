"""An executor's pod and volume claims as JSON, from template, patch and settings."""
