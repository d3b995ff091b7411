"""One file per regression; the module's docstring describes it."""
