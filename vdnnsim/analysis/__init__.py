"""Pure functions from a trace to numbers, and the results of a scenario.

`metrics` has every number of an iteration, from `memory`; `results` a scenario's, `columns` their names, units and
meanings; `comparison`, `frontier` and `machines` rank them; `several_gpus`, `power`, `layers` and `measured_step` look
at one aspect each. Begin with `metrics.py`. Everything above plans and engine may import it.
"""
