"""The tools: each a function whose signature and docstring are its schema and description, and a row that names it.

The functions translate: arguments as a model gives them to a verb of ``ops``, and what that answers to data of a size
that a model can read. They are keyword-only, and may take ``call`` to be cancelled and to tell how far they are.
"""
