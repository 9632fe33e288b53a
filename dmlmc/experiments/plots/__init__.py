"""Matplotlib figures from tables: one file per notebook, and the shared ``style``, ``widgets``, ``learning_curves``."""
