"""Our QUIC against other implementations, both ways: python -m tests.interop (`make interop`)."""
