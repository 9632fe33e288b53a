"""Measuring a loss: gradients level by level, rates with intervals, the check list, seconds."""
