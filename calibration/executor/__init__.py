"""Execution of plans on a device: buffers in its memory, kernels and copies on its streams, a trace of both.

Begin with `executor`. It compiles a plan (`compiled_plan`), allocates memory (`device_buffers`, `pinned_arena`), issues
the operations (`plan_walk`) and makes a trace of the marks (`measured_trace`). It imports `devices`, `kernels` and
`measure` of calibration; validation uses it, and `calibration.apply` its pinned arena.
"""
