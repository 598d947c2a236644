"""Plans applied to the user's own training loop, with bitwise the same result.

`scheduling` translates a plan into a `live_schedule`: actions at saves and unpacks of autograd. `loop` runs the steps
of a model with `step_hooks`, which offload, prefetch and recompute (`saved_storage`, `copy_stream`, `recipe`).
`expected_plan` predicts a loop, and `script` finds the models of an unchanged script. Only `vdnnsim.api` imports it.
Begin at `loop.Loop`.
"""
