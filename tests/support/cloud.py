"""A local cloud of its own for each test."""
