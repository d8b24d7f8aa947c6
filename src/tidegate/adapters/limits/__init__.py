"""Limits that several processes share: the exchange of leases, and the two stores that can be asked."""
