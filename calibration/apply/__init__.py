"""A plan in the user's own training loop: what it moves is moved while the loop runs, with bitwise the same result."""
