"""Tests of restart and update."""
