"""Questions that take many replays: studies over grids, what-ifs, largest batches, frontiers, machines, advice.

A study is read from its file (`read.py`, `axes.py`), its points (`points/`) are computed by a sweep (`sweep.py`,
`cluster.py`) and kept in a database (`store.py`), from which rows (`results.py`) and a folder (`folder.py`) are made.
Each other module is one question. `cli`, `api` and `claims` import this package. Begin with `study.py` and
`points/compute.py`.
"""
