"""Figures: tables in, matplotlib figures out. ``style`` is shared; every other file draws for one notebook."""
