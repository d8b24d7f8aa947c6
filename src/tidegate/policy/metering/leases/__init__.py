"""Limits that several processes share: the authority's ledger, and the slices of it that a worker uses without asking."""
