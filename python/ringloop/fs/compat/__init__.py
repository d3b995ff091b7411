"""Stand-ins for other packages of asynchronous files."""
