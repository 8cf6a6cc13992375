"""What `make` and its targets run."""
