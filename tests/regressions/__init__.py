"""One file a regression, its story in the docstring of the module."""
