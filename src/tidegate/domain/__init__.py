"""The vocabulary: frozen records, units and outcomes. No behaviour beyond arithmetic, but for the one way an error is written."""
