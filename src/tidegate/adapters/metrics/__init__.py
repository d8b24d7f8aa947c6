"""Counts made from finished records."""
