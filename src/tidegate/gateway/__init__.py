"""The live driver: it carries bytes between exchanges and upstream calls, and performs what the flows decide."""
