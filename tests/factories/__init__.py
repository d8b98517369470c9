"""Rows for tests, one module for each app."""
