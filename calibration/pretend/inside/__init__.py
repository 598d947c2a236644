"""Recorder in a user's process on a pretended GPU, of the standard library and PyTorch alone; begin with `recording`.

It is loaded under another name, in an environment that may lack vdnnsim; so its modules import each other by relative
names, and nothing else of vdnnsim.
"""
