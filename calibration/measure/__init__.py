"""Measurements: kernels, copies, the host, the machine; each a median with its spread and count."""
