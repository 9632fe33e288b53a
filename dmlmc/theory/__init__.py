"""The paper's theorem and our own, as numbers: bounds, exact runs on quadratics, costs. No JAX, no plots."""
