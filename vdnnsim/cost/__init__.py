"""HOW LONG one operation takes alone, and how much workspace it wants."""
