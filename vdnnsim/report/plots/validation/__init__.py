"""Pictures of measured against simulated."""
