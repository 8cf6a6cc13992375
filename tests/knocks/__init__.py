"""Stress tests with random cases, each repeatable from its kind, seed and number; run by `make knocks`."""
