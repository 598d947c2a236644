"""The search behind `optimal`: the fastest schedule that fits a memory, and lower bounds that certify it.

Begin with `problem`, then `planner`. `fluid_bound` and `recomputation_bound` are the bounds, `offload`,
`recompute_search` and `fitting` the searches, `timetable` the result of an offload search.
Imports `plans`; `policies.optimal` imports it, and every search with a `deadline`.
"""
