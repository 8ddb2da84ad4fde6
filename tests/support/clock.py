"""A clock that tests move."""
