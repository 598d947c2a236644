"""The only home of SimPy: executes a plan in simulated time."""
