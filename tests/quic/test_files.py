"""Inaccessible files and directories: the error has errno and the path, immediately."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop.quic.configuration import QuicConfiguration
from ringloop.quic.logger import QuicFileLogger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.tls import Certificates

    Take = Callable[[Any], object]

NOBODY = 65534


def takers(certificates: Certificates) -> dict[str, Take]:
    """All functions that take a path, by name: those for files first."""
    certificate, key = certificates.issue()
    authority = certificates.authority.read_bytes()
    shown: dict[str, Any] = {
        "certificate": certificate.read_bytes(),
        "private_key": key.read_bytes(),
    }
    trusted: dict[str, Any] = {"ca_data": authority}

    def client(name: str) -> Take:
        return lambda path: quic.ClientConfig(**{**trusted, name: path})

    def server(name: str) -> Take:
        return lambda path: quic.ServerConfig(**{**shown, name: path})

    def aioquics(name: str) -> Take:
        return lambda path: QuicConfiguration(**{"cadata": authority, name: path}).client_config()

    config = quic.ServerConfig(**shown)
    return {
        "keylog": client("keylog"),
        "keylog of a server": server("keylog"),
        "secrets_log_file": aioquics("secrets_log_file"),
        "certificate": server("certificate"),
        "private_key": server("private_key"),
        "certificate of a client": client("certificate"),
        "set_certificate": lambda path: config.set_certificate(path, shown["private_key"]),
        "sni": lambda path: quic.ServerConfig(sni={"localhost": (path, shown["private_key"])}),
        "ca_file": client("ca_file"),
        "ca_file of a server": lambda path: quic.ServerConfig(
            client_auth="required", ca_file=path, **shown
        ),
        "cafile": aioquics("cafile"),
        "load_cert_chain": QuicConfiguration().load_cert_chain,
        "certificate_file": aioquics("certificate_file"),
        "qlog": client("qlog"),
        "qlog of a server": server("qlog"),
        "sessions": server("sessions"),
        "token_store": client("token_store"),
        "ca_path": client("ca_path"),
        "capath": aioquics("capath"),
        "QuicFileLogger": QuicFileLogger,
    }


OF_DIRECTORIES = {
    *("qlog", "qlog of a server", "sessions", "token_store", "ca_path", "capath", "QuicFileLogger"),
}
MAKES_ITS_DIRECTORY = {"sessions", "token_store"}
WRITES = {
    *("keylog", "keylog of a server", "secrets_log_file"),
    *("qlog", "qlog of a server", "sessions", "token_store"),
}


def refused(take: Take, path: Path, kind: type[OSError], code: int) -> None:
    """Check that a path is refused, in both of its types."""
    for given in (path, str(path)):
        with pytest.raises(kind) as caught:
            take(given)
        assert caught.value.errno == code
        assert caught.value.filename == str(path)
        assert str(path) in str(caught.value)


def named(certificates: Certificates, names: set[str]) -> Iterator[Take]:
    for name, take in takers(certificates).items():
        if name in names:
            yield take


def all_but(certificates: Certificates, names: set[str]) -> Iterator[Take]:
    return named(certificates, set(takers(certificates)) - names)


def test_missing_paths(certificates: Certificates, tmp_path: Path) -> None:
    for take in all_but(certificates, MAKES_ITS_DIRECTORY):
        refused(take, tmp_path / "missing" / "file", FileNotFoundError, errno.ENOENT)


def test_directories_in_place_of_files(certificates: Certificates, tmp_path: Path) -> None:
    for take in all_but(certificates, OF_DIRECTORIES):
        refused(take, tmp_path, IsADirectoryError, errno.EISDIR)


def test_files_in_place_of_directories(certificates: Certificates, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.touch()
    for take in named(certificates, OF_DIRECTORIES):
        refused(take, place, NotADirectoryError, errno.ENOTDIR)
    for take in takers(certificates).values():
        refused(take, place / "inside", NotADirectoryError, errno.ENOTDIR)


@contextmanager
def as_somebody() -> Iterator[Path]:
    """Give a directory of another user; root changes to an unprivileged user."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "file").touch(0o600)
        (folder / "directory").mkdir(0o700)
        (folder / "to read").mkdir()
        (folder / "file to read").touch()
        modes = [(folder, 0o555), (folder / "to read", 0o555), (folder / "file to read", 0o444)]
        if os.geteuid() != 0:
            modes += [(folder / "file", 0), (folder / "directory", 0)]
        for path, mode in modes:
            path.chmod(mode)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            if is_root:
                os.seteuid(0)
            for path, _ in modes:
                path.chmod(0o700)


@pytest.mark.one_thread("who it is, the process is")
def test_paths_without_permission(certificates: Certificates) -> None:
    takes = takers(certificates)
    with as_somebody() as folder:
        for name, take in takes.items():
            is_directory = name in OF_DIRECTORIES
            place = folder / ("directory" if is_directory else "file")
            refused(take, place, PermissionError, errno.EACCES)
            if name in WRITES:
                there = folder / ("to read" if is_directory else "file to read")
                refused(take, there, PermissionError, errno.EACCES)
                if name not in ("qlog", "qlog of a server"):
                    refused(take, folder / "new", PermissionError, errno.EACCES)


def test_world_writable_directory(certificates: Certificates, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for take in named(certificates, MAKES_ITS_DIRECTORY):
        refused(take, tmp_path, PermissionError, errno.EACCES)


def test_directories_are_left_as_they_were(certificates: Certificates, tmp_path: Path) -> None:
    for take in named(certificates, OF_DIRECTORIES - {"ca_path", "capath"}):
        take(tmp_path)
        assert list(tmp_path.iterdir()) == []


def test_pipe_without_a_reader(certificates: Certificates, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for take in named(certificates, {"keylog", "keylog of a server", "secrets_log_file"}):
        refused(take, pipe, OSError, errno.ENXIO)


def test_impossible_file_names(certificates: Certificates) -> None:
    for take in takers(certificates).values():
        with pytest.raises(ValueError, match="null"):
            take("a\0b")
        refused(take, Path("x" * 256), OSError, errno.ENAMETOOLONG)


@pytest.mark.parametrize("path", [3.5, [3], object()])
def test_paths_of_other_types(certificates: Certificates, path: Any) -> None:
    for take in takers(certificates).values():
        with pytest.raises(TypeError):
            take(path)


def test_files_with_other_contents_are_named(certificates: Certificates, tmp_path: Path) -> None:
    place = tmp_path / "other"
    for text in (b"", b"text", b"\0" * 100, b"-----BEGIN NOTHING-----\n-----END NOTHING-----\n"):
        place.write_bytes(text)
        for name, take in takers(certificates).items():
            if name in ("certificate", "private_key", "certificate of a client", "ca_file"):
                with pytest.raises(quic.ConfigurationError) as caught:
                    take(place)
                assert str(place) in str(caught.value), name
    with pytest.raises(quic.ConfigurationError, match="neither PEM nor DER"):
        quic.ServerConfig(certificate="/dev/null", private_key=certificates.issue()[1])


def test_error_of_aioquics_logger_is_both(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere' does not exist") as caught:
        QuicFileLogger(tmp_path / "nowhere")
    assert isinstance(caught.value, FileNotFoundError)
