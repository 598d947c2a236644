"""The folder of a run: pages, manifest, traces and snapshots; begin with `folder.py`."""
