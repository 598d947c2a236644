"""Memory-management policies, a file for each publication: functions from a workload and its costs to a plan.

Begin with `interface`, the base class and its setting, and `base`, the smallest policy. `algorithms` chooses
kernels, `iterations` holds schedules that several policies share, `registry` finds policies by name.
Imports `planning` and `plans`; scenarios, studies and the command line import it.
"""
