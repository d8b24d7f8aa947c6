"""What a client gets when no model answers it well: prepared answers, and a fallback for kinds of prompts that keep failing."""
