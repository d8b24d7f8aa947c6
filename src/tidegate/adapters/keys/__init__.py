"""API keys: their format, the SQLite store that keeps their hashes, and the watcher that carries changes to every process."""
