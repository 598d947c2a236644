"""What is decided: one file for each publication, whose policies are functions from a workload and its costs to a plan.

`port` says what a policy is and what it is told, `algorithms` how it chooses kernels, `shipped` which there are; how
they are asked for by name stands in `registry`, and iterations that need more than a page in `iterations`.
"""
