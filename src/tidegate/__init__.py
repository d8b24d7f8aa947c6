"""Tidegate meters, routes, protects and explains every token between applications and LLMs."""

__version__ = "0.1.0"
