"""Training: the loop, the compiled program with the one SGD step, checkpoints, and iterates along a run."""
