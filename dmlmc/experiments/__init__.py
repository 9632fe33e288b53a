"""The experiments of the paper and of this companion, as tables. Their figures are in ``plots``."""
