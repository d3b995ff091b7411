"""Converts a program's certificates and keys to bytes.

Owns: what needs the `cryptography` package, which is imported only then. Called by: `configuration`,
the native configurations. Never does: keep a key or a password.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from .errors import ConfigurationError

__all__ = ["Password", "decrypted", "encoded"]

Password: TypeAlias = bytes | str | Callable[[], bytes | str]


def encoded(material: Any) -> bytes:
    """Return a certificate or a key as bytes: text, bytes, or an object of `cryptography`."""
    if isinstance(material, str):
        if "-----BEGIN" not in material:
            raise ConfigurationError(
                f"{material[:80]!r} is neither PEM nor an object of 'cryptography': files are read by"
                " load_cert_chain(certfile, keyfile)"
            )
        return material.encode()
    if isinstance(material, bytes | bytearray | memoryview):
        return bytes(material)
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 (optional)

    if hasattr(material, "private_bytes"):
        return _plain(material, serialization.Encoding.DER)
    der: bytes = material.public_bytes(serialization.Encoding.DER)
    return der


def decrypted(key: bytes, password: Password) -> bytes:
    """Decrypt a key (PEM, or PKCS#8 in DER); return it in the same encoding.

    Errors: ConfigurationError for a wrong password, and for anything but an encrypted key.
    """
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 (optional)
    except ImportError:
        raise ValueError(
            "An encrypted key needs the 'cryptography' package; or decrypt it: openssl pkey -in KEY"
        ) from None
    if callable(password):
        password = password()
    given: Any = password
    if not isinstance(given, str | bytes | bytearray):
        kind = type(given).__name__
        raise TypeError(
            f"password must be bytes, str, or a function that returns either: not {kind}"
        )
    secret = (password.encode() if isinstance(password, str) else password) or None
    is_pem = b"-----BEGIN" in key
    load = serialization.load_pem_private_key if is_pem else serialization.load_der_private_key
    try:
        loaded = load(key, secret)
    except TypeError:
        if secret is None:
            raise ConfigurationError("The private key is encrypted: give its password") from None
        raise ConfigurationError(
            "The private key is not encrypted: leave out its password"
        ) from None
    except ValueError as error:
        # A wrong password may end in valid padding, and fails only as a key that cannot be parsed.
        raise ConfigurationError(
            f"The private key cannot be decrypted: wrong password, or not a key ({error}). Remedy:"
            " give the password that it was encrypted with; try it with openssl pkey -in KEY"
        ) from error
    return _plain(loaded, serialization.Encoding.PEM if is_pem else serialization.Encoding.DER)


def _plain(key: Any, encoding: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 (optional)

    plain: bytes = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return plain
