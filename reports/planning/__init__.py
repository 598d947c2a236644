"""How near `optimal` comes to its bound: the pages, and the programs that write them."""
