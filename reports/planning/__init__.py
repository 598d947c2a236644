"""How near `optimal` comes to its bound: pages, and the program that makes the one on transformers."""
