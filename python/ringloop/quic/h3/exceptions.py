"""Exceptions of `H3Connection`'s calls, with the names of `aioquic.h3.exceptions`."""

__all__ = ["H3Error", "InvalidStreamTypeError", "NoAvailablePushIDError"]


class H3Error(Exception):
    """A call failed."""


class InvalidStreamTypeError(H3Error):
    """The call requires a request's stream."""


class NoAvailablePushIDError(H3Error):
    """Pushes are not supported."""
