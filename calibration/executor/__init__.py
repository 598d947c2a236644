"""Executes plans on a device: buffers in its memory, kernels and copies on its streams, the trace of what happened.

Begin with `executor`. It compiles a plan (`compiled_plan`), takes memory (`device_buffers`, `pinned_arena`), issues the
operations (`plan_walk`) and makes a trace of the marks (`timeline`). It stands on `calibration.devices` and
`calibration.kernels`; validation uses it, and `calibration.apply` its pinned arena.
"""
