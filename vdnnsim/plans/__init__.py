"""Plans, the contract between policies and executors: buffers and operations that one GPU issues in one iteration.

Begin with `operations` and `training_plan`. A policy writes a `schedule`, `lowering` makes a plan of it by one of the
`schemes` of allocation, `check` validates a plan, `placement` says whether it fits, a `trace` is its execution.
Imports workloads, costs and memory models; everything that plans or executes imports it.
"""
