"""The one loop from rows to results, and the only door to the native engine."""
