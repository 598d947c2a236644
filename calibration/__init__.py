"""Real devices: the only home of PyTorch. Running a scenario never imports this package.

From below: `devices`, `kernels`; `measure`, which calibrates, and `pretend`, CUDA without a GPU; `executor`
of plans, `capture` of models, and `workspaces`, a command; `apply`, plans in a user's training loop. The command line
and the functions for notebooks import it; `availability` alone does without PyTorch. Begin with `devices.interface`.
"""
