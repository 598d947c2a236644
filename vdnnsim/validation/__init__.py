"""Measured against simulated: the same plans executed on a device and replayed in the engine.

`method` has tasks and tolerances, `validate` runs them, `run/` makes both sides of each `row`, `report/` writes page,
table, pictures and manifest. Begin with `validate.py`. The API and the command line import it and pass the device, an
`executor.Laboratory`, so that nothing here needs PyTorch.
"""
