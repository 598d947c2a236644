"""Pictures of one iteration: its streams, its memory, its GPUs, its links."""
