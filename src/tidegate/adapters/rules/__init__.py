"""Answers by fixed rules, for when no model can answer."""
