"""Pages on papers and published measurements, and the modules by which `python -m reports PAPER` writes them.

The folder of a paper has its page, pictures and tables, and the modules that draw them from the replays of
`vdnnsim.claims`. Nothing imports this package, and it is not in the wheel. Begin with `__main__.py` and `page.py`.
"""
