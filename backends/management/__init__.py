"""Commands of the backends."""
