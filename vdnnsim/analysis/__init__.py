"""Pure functions from a trace to numbers, and the results of a scenario.

`metrics` has every number of an iteration, from `memory`; `results` a scenario's, `columns` their names, units and
meanings; `comparison`, `frontier` and `machines` rank them; `several_gpus` is contention, `measured_step` a step of a
user's loop. Begin with `metrics.py`. Everything above plans and engine may import it.
"""
