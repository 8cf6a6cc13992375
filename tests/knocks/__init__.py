"""Knocks at the package: cases by chance, each repeatable from its kind, seed and number; `make knocks`."""
