"""The folder that `run` writes: its page, its manifest, its traces."""
