"""Recordings of training runs: traces of PyTorch's profiler and CUDA memory snapshots, read without PyTorch.

A trace becomes a step (`recorded_step.py`), a workload (`recorded_workload.py`) and a profile with a kernel table
(`recorded_profile.py`); a snapshot is replayed under memory models (`snapshot_replay.py`). The report and the command
line import this package. Begin with `kineto.py`, which knows the formats of traces, or with `snapshot.py`.
"""
