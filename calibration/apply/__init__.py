"""Plans applied to the user's own training loop, with bitwise the same result.

`scheduling` reads a plan into a `live_schedule`: what is due at each tensor that autograd saves or unpacks. `loop` runs
the steps of a model with `step_hooks` that do it, on `saved_storage` by `copy_stream`; `recomputation` and `recipe` run
forward again. `expected_plan` predicts what a loop will do, and `script` finds the models of an unchanged script.
`vdnnsim.api` imports it, and nothing else does. Begin at `loop.Loop`.
"""
