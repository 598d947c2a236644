"""Calibration: kernels, copies and the host of a device, each a median with its spread and count, as a profile.

Begin with `calibrate`, which measures a whole device; `session` keeps measurements in a `journal`, `timing` repeats
work, `machine` makes the figures of a profile. It imports `calibration.devices` and `kernels`; the command line imports
it, and `calibration.executor` the operands of a kernel and its measured workspace.
"""
