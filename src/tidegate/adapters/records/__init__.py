"""Where finished records go: JSON Lines files, and one log line each."""
