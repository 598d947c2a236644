"""Pages on papers and on others' measurements, and what draws those that `python -m reports PAPER` writes.

In the folder of a paper stand its page, pictures and tables beside the modules that draw them from the replays of
`vdnnsim.claims`. Nothing imports this package, and no wheel holds it. Begin with `__main__.py`; `page.py` has what all
pages share.
"""
