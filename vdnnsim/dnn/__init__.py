"""WHAT is trained: shapes, layers, the graph they form, and the work that each of them is."""
