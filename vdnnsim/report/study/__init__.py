"""What a study draws of its rows, before it is drawn."""
