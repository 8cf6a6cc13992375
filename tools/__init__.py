"""Scripts that the targets of `make` run."""
