"""Measuring: each scenario beside its floor, the same calls made by a bare script in the same run."""
