"""Training: the loop, the compiled program, the one SGD step, checkpoints, and iterates along a run."""
