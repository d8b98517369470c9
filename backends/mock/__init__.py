"""A backend that keeps the contract and runs nothing."""
