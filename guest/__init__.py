"""The guest: what goes into a MicroVM image. A source root of its own that imports only the standard library."""
