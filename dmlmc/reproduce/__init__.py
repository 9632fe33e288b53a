"""Running the notebooks: ``python -m dmlmc.reproduce``."""
