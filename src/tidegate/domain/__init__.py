"""The vocabulary: frozen records, units and outcomes. No behaviour beyond arithmetic."""
