"""Run the notebooks and judge the paper's claims: ``python -m dmlmc.reproduce``."""
