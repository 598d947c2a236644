"""Networks, captured models, and the iteration that either is: `Step`, its storages, tensors and operations.

Operators and layers (`operator`, `layers`, `graph`), the networks of the papers (`networks`), captured steps and their
files (`captured_step`, `captured_file`), and workloads, which are what all other rooms take (`workload`). It imports
`files`, `units` and `errors` alone; everything above `hardware` and `memory` may import it. Begin with `step`.
"""
