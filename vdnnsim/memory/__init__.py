"""Memory models: allocators in plain Python, which serve the requests of a plan without a clock.

They decide what fits and at which address. Begin with `requests` and `models.place`; `choices` names the models,
`caching` is PyTorch's allocator, `bfc` TensorFlow's, `storages` MXNet's, `cuda_malloc` the driver's, `planned` places
ahead of time, and `process` has the other memory of a process. Imports `files`, `units` and `errors` alone.
"""
