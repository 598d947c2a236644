"""A plan in the user's own training loop: what a schedule moves is moved while the loop runs, bitwise the same result."""
