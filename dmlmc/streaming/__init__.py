"""Streaming MLMC: the estimator, the pairs in flight, and the chunks they are advanced by."""
