"""Records one iteration of any PyTorch model as a `CapturedStep`, with no memory allocated and no GPU.

`capture` runs an iteration under a `Recorder`, whose records become operations, on fake tensors that take the operators
of CUDA (`fake_tensors`, `as_cuda`). `sources` makes programs of what a user names, `objects` of what a notebook holds;
`isolation` does either in a process of its own. `calibration.apply` imports the tape, schemas and nodes. Begin with
`capture`.
"""
