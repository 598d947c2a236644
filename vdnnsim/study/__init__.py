"""Questions that take many replays: studies over grids, what-ifs, largest batches, frontiers, machines, advice.

A study goes from its file (`read.py`, `axes.py`) over points (`points/`) and a sweep (`sweep.py`, `cluster.py`) to its
database (`store.py`), rows (`results.py`) and folder (`folder.py`). The other modules are a question each and replay
scenarios themselves. `cli`, `api` and `claims` import this package. Begin with `study.py` and `points/compute.py`.
"""
