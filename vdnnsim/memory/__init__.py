"""Memory pools in plain Python: they walk a plan's allocations without a clock and say what fits, and where."""
