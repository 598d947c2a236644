"""The folder of a run: its pages, its manifest, its traces and snapshots; begin with `folder.py`."""
