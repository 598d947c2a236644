"""One rank of several: the layout that a user names, the model in it, and its collectives.

The other ranks are not there. PyTorch's fake process group returns at once from collectives, so that the program of
rank 0 runs, with the same operators, memory and streams. The layout is a `vdnnsim.dnn.layout`, `world` makes
the process group, `shard` wraps the model, whose layers `tensor` splits by a `tensor_plan`, and `collectives` reads
collectives from operators. Begin with `shard`.
"""
