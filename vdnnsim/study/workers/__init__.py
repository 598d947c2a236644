"""Whoever computes chunks of points: this process, others of this machine, or a cluster."""
