"""Plans, the contract between policies and executors: buffers and operations that one GPU issues in one iteration.

Begin with `operations` and `training_plan`. A policy writes a `schedule`, `lowering` makes a plan of it by one of the
`schemes` of allocation, `check` proves a plan, `placement` says whether it fits, and a `trace` is what came of it.
Imports workloads, costs and memory models; everything that plans or executes imports it.
"""
