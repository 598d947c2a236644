"""THE CONTRACT between policies and executors: the operations that one GPU issues in one iteration."""
