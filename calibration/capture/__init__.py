"""Records one iteration of any PyTorch model as a `CapturedStep`, with no memory allocated and no GPU.

`capture` runs an iteration under a `Recorder`, whose records become operations, on fake tensors that dispatch as on
CUDA (`fake_tensors`, `as_cuda`). `sources` makes programs from a model's name or a file, in a child process
(`isolation`), and `objects` from those of a notebook. `calibration.apply` imports the tape, schemas and nodes. Begin
with `capture`.
"""
