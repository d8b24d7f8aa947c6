"""One `tidegate.yaml`: the schema declared once as data, loading, checking, and its generated page."""
