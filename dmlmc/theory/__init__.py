"""The paper's theorem and ours in numbers: bounds, exact runs on quadratic losses, costs. No JAX, no plots."""
