"""Makes certificates for servers without a public name: an authority, and those it signs.

Owns: the names that a certificate may have, and the files. Called by: programs (`make_certificate`),
`python -m ringloop.quic certificate`. Never does: make a key readable to other users.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from ringloop import _system
from ringloop._arguments import check_bools
from ringloop._native import quic as _quic
from ringloop.quic.errors import ConfigurationError

__all__ = ["CertificateFiles", "make_certificate"]

DAYS_MAX: Final = 397
"""Verifiers reject server certificates valid for more than 398 days; it starts an hour ago."""

_NAMES_MAX: Final = 100
_NAME_LEN_MAX: Final = 253
_STEM_LEN_MAX: Final = 200
_AUTHORITY: Final = "authority"


@dataclass(frozen=True)
class CertificateFiles:
    """The PEM files that `make_certificate` writes to a directory."""

    certificate: Path
    """For `certificate=`."""
    private_key: Path
    """Its key, for `private_key=`; only its owner can read it."""
    ca_file: Path
    """The authority, for the `ca_file=` of clients that verify the certificate."""
    ca_key: Path
    """The authority's key, which signs further certificates; only its owner can read it."""
    names: tuple[str, ...]
    """The names in the certificate: lower case, A-labels."""
    is_new_authority: bool
    """Whether the authority was made now, rather than found in the directory."""


def make_certificate(
    *names: str | IPv4Address | IPv6Address,
    directory: str | os.PathLike[str] = ".",
    days: int = 365,
    overwrite: bool = False,
) -> CertificateFiles:
    """Make a certificate for your own server (or client), signed by your own authority.

    `names` are one to 100 DNS names (`localhost`, `*.example.org`, `bücher.example`) and addresses
    (`127.0.0.1`, `::1`) that clients connect to. The files are named after the first:
    `localhost.pem` and `localhost.key`. `directory` is created if missing. The authority in
    it, `authority.pem` and `authority.key`, signs; it is created the first time, and lasts ten years.
    Clients that trust it (`ca_file=`) accept everything it has signed. The certificate is valid from
    an hour ago for `days`, 1 to 397 days; servers and clients may present it. With `overwrite` it
    replaces an existing one; the authority is never replaced.

    ::

        files = quic.make_certificate("localhost", "127.0.0.1", "::1", directory="certificates")
        await quic.serve(certificate=files.certificate, private_key=files.private_key, ...)
        quic.connect("localhost", port, ca_file=files.ca_file, ...)

    Errors: `ConfigurationError` for an invalid name or number of days, and for an authority that was not
    made by this function or expires too early; `FileExistsError` if the certificate or its key already
    exists; other `OSError`s of files, with errno and filename.
    """
    if type(days) is not int:
        raise TypeError(f"days must be a whole number, not {days!r}")
    if not 1 <= days <= DAYS_MAX:
        raise ConfigurationError(f"days is {days}: give 1 to {DAYS_MAX}")
    check_bools(overwrite=overwrite)
    wanted = tuple(dict.fromkeys(_as_certified(name) for name in names))
    if not 1 <= len(wanted) <= _NAMES_MAX:
        raise ConfigurationError(f"a certificate has 1 to {_NAMES_MAX} names, not {len(wanted)}")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    stem = _stem(wanted[0])
    files = CertificateFiles(
        certificate=folder / f"{stem}.pem",
        private_key=folder / f"{stem}.key",
        ca_file=folder / f"{_AUTHORITY}.pem",
        ca_key=folder / f"{_AUTHORITY}.key",
        names=wanted,
        is_new_authority=False,
    )
    with _system.alone_in(folder):
        return _made(files, days, overwrite=overwrite)


def _made(files: CertificateFiles, days: int, *, overwrite: bool) -> CertificateFiles:
    if not overwrite:
        for path in (files.certificate, files.private_key):
            if os.path.lexists(path):
                text = f"{os.strerror(errno.EEXIST)} (overwrite replaces it)"
                raise FileExistsError(errno.EEXIST, text, os.fspath(path))
    authority = _kept_authority(files)
    try:
        signed = _quic.sign_certificate(files.names, days, authority)
    except ConfigurationError as error:
        raise ConfigurationError(f"the authority {files.ca_file}: {error}") from None
    ca_certificate, ca_key, certificate, key = signed
    if authority is None:
        _write({files.ca_key: (ca_key, 0o600), files.ca_file: (ca_certificate, 0o644)})
    _write(
        {files.private_key: (key, 0o600), files.certificate: (certificate, 0o644)},
        replaces=overwrite,
    )
    return CertificateFiles(**{**vars(files), "is_new_authority": authority is None})


def _kept_authority(files: CertificateFiles) -> tuple[str, str] | None:
    """Read the authority; `None` if there is none. One file without the other is an error."""
    if not (os.path.lexists(files.ca_file) or os.path.lexists(files.ca_key)):
        return None
    certificate, key = (
        path.read_text(encoding="ascii", errors="replace") for path in (files.ca_file, files.ca_key)
    )
    return certificate, key


# --- names ----------------------------------------------------------------------------------------

_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)


def _as_certified(name: str | IPv4Address | IPv6Address) -> str:
    """Return a name as it is written in a certificate: A-labels, or an address without a zone."""
    if isinstance(name, IPv4Address | IPv6Address):
        name = str(name)
    if not isinstance(name, str):
        raise TypeError(f"a certificate's names and addresses must be str, not {name!r}")
    try:
        # Zones are local to a machine: certificates have none.
        return str(ip_address(name)).partition("%")[0]
    except ValueError:
        pass
    wildcard = "*." if name.startswith("*.") else ""
    bare = name.removeprefix(wildcard)
    with suppress(UnicodeError):
        # As `ssl` encodes server names.
        bare = bare if bare.isascii() else bare.encode("idna").decode("ascii")
    bare = bare.lower()
    labels = bare.split(".")
    is_name = all(_LABEL.fullmatch(label) for label in labels)
    if not is_name or labels[-1].isdigit() or len(wildcard + bare) > _NAME_LEN_MAX:
        raise ConfigurationError(
            f"{name!r} is not a valid name: give a DNS name (labels of 1 to 63 letters, digits"
            f" and '-', {_NAME_LEN_MAX} characters in total), '*.' in front of one, or an address"
        )
    if wildcard and len(labels) == 1:
        raise ConfigurationError(
            f"{name!r} is a wildcard that clients reject: put two labels or more after it"
            " ('*.example.org')"
        )
    return wildcard + bare


def _stem(name: str) -> str:
    """Return the file names for a name: neither hidden, nor like an option, nor the authority's."""
    stem = name.replace("*", "_wildcard").replace(":", "_")[:_STEM_LEN_MAX]
    return f"_{stem}" if stem == _AUTHORITY else stem


# --- files ----------------------------------------------------------------------------------------


def _write(texts: dict[Path, tuple[str, int]], *, replaces: bool = False) -> None:
    """Write files with their modes, all or none; existing ones are an error, or replaced atomically."""
    beside = {
        path: path.with_name(f".{secrets.token_hex(8)}") if replaces else path for path in texts
    }
    made: list[Path] = []
    try:
        for path, (text, mode) in texts.items():
            _write_new(beside[path], text, mode)
            made.append(beside[path])
        if replaces:
            for path, written in beside.items():
                written.replace(path)
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise


def _write_new(path: Path, text: str, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    flags |= _system.OPEN_FLAGS
    descriptor = os.open(path, flags, mode)
    try:
        # The text has the line ends of the system.
        with os.fdopen(descriptor, "w", encoding="ascii", newline="") as file:
            file.write(text)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = os.fspath(path)
        raise
