"""The search behind `optimal`: the fastest schedule that fits a memory, and lower bounds that certify it.

Begin with `problem`, then `planner`. `fluid_bound` and `recomputation_bound` are the bounds, `offload`,
`recompute_search` and `fitting` the searches, `timetable` what an offload search decides.
Imports `plans`; `policies.optimal` imports it, and what searches under a `deadline`.
"""
