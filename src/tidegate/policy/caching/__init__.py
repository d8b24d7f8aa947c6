"""Whether an answer is already known."""
