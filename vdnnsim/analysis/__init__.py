"""Pure functions from a trace to numbers."""
