"""The papers' rows, checked: what each paper states in numbers, and what the replay says of it."""
