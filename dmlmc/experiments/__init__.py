"""The experiments of the paper and of this companion, as tables. The figures are in ``plots``."""
