"""What type checkers say of a user's program. Nothing here runs; `mypy` checks it with everything else."""
