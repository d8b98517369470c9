"""What runs workloads: the contract, the client of it, and the agents that serve it."""
