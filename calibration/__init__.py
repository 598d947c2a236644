"""Real devices: the only home of PyTorch. Running a scenario never imports this package."""
