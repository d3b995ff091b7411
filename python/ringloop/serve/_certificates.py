"""Certificates of both protocols, and their replacement while the server runs.

Owns: the context of TLS over TCP, the configuration of QUIC. A reload takes effect for later
handshakes; if a file cannot be used, nothing changes.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringloop._native.quic import ServerConfig
    from ringloop.serve._settings import Path, Settings

__all__ = ["Certificates"]


class Certificates:
    """The certificates that `settings` name.

    `context` is for `asyncio`'s servers: for each handshake it selects a context by the name that the
    client requests.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._quic: list[ServerConfig] = []
        self._default, self._by_name = self._loaded()
        self.context = _context(settings.certificate, settings.private_key)
        self.context.sni_callback = self._select

    def add(self, configuration: ServerConfig) -> None:
        """Have a configuration of QUIC follow reloads."""
        self._quic.append(configuration)

    def keywords(self) -> dict[str, Any]:
        """Return the arguments of a QUIC configuration."""
        settings = self._settings
        return {
            "certificate": settings.certificate,
            "private_key": settings.private_key,
            "sni": settings.sni or None,
        }

    def reload(self) -> None:
        """Read all files again.

        OSError, ValueError: a file cannot be read, or is not a certificate or its key.
        """
        # By OpenSSL first, which checks each pair.
        loaded = self._loaded()
        for configuration in self._quic:
            for name, (certificate, key) in self._settings.sni.items():
                configuration.set_certificate(certificate, key, name)
            configuration.set_certificate(self._settings.certificate, self._settings.private_key)
        self._default, self._by_name = loaded

    def _loaded(self) -> tuple[ssl.SSLContext, dict[str, ssl.SSLContext]]:
        settings = self._settings
        named = {name.lower(): _context(*files) for name, files in settings.sni.items()}
        return _context(settings.certificate, settings.private_key), named

    def _select(
        self, connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext
    ) -> None:
        connection.context = self._by_name.get((name or "").lower(), self._default)


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise ValueError(
            f"{certificate} and {key} are not a certificate and its key: {error.reason or error}"
        ) from error
    except OSError as error:
        error.filename = error.filename or f"{certificate}, {key}"
        raise
    return context


def _no_password() -> str:
    raise ValueError("the private key has a password: decrypt it with openssl pkey -in KEY")
