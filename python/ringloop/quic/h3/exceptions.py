"""Exceptions of `H3Connection`'s calls, with the names of `aioquic.h3.exceptions`."""

__all__ = ["H3Error", "InvalidStreamTypeError", "NoAvailablePushIDError"]


class H3Error(Exception):
    """A call that cannot be carried out."""


class InvalidStreamTypeError(H3Error):
    """The stream is not a request's, as the call requires."""


class NoAvailablePushIDError(H3Error):
    """A push is not possible: they are not supported."""
