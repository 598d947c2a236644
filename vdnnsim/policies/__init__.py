"""What is decided: one file per published idea, each a function from a workload and its costs to a `TrainingPlan`."""
