"""Studies: one scenario with some of its values varied over a grid, computed by many processes and kept in a store."""
