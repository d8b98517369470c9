"""Django's backend for PostgreSQL, with a pool that soon uses a server that went away and came back."""
