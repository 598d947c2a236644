"""WHERE it is trained: the profiles of machines, each figure with its unit and its origin."""
