"""What makes pods run: as processes of this machine, or by script."""
