"""The backend contract as checks that can be pointed at any backend."""
