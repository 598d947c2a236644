"""What is kept of a study, and what is written from it."""
