"""Scenarios: read from YAML or made of a captured model, checked, and replayed under each of their policies.

`read.py` and `captured.py` make a `Scenario`, `simulator.py` plans, places and replays on its machine, `experiment.py`
runs all of its policies. `study`, `validation`, `claims`, `api` and `cli` import this package; it imports `policies`,
`engine` and what is below. Begin with `experiment.py`.
"""
