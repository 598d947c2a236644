"""What is put into a user's process on a pretended GPU, to record what it takes: standard library and PyTorch alone.

It is loaded under another name than here, in an environment that may not have vdnnsim; so its modules import each other
by relative names, and nothing else of vdnnsim.
"""
