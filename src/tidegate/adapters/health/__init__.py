"""Asking replicas how they are, and sharing what was found with other nodes."""
