"""Measured against simulated: the same plans on a device and in the engine."""
