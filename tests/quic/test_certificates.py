"""Self-made certificates: all verifiers accept them, and key files are created safely."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import stat
import subprocess
import sys
import threading
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop.quic import __main__
from tests.support import within
from tests.support.tls import openssl

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[[Any], Any]


def shown(files: quic.CertificateFiles) -> dict[str, Any]:
    """The keywords of a server, or of a client with a certificate."""
    return {"certificate": files.certificate, "private_key": files.private_key, "alpn": ["test"]}


def verified(run: Run, files: quic.CertificateFiles, name: str, host: str = "127.0.0.1") -> None:
    """Connect our own two ends, each of which verifies the other."""

    async def main() -> None:
        known: dict[str, Any] = {"ca_file": files.ca_file}
        wanted: dict[str, Any] = {"client_auth": "required", **known}
        async with await quic.serve(None, host, **shown(files), **wanted) as server:
            dialled: dict[str, Any] = {"server_name": name, **shown(files), **known}
            async with quic.connect(*server.address[:2], **dialled) as connection:
                await within(connection.ping())

    run(main())


# --- verifiers ------------------------------------------------------------------------------------


def test_our_own_ends_verify_each_other(run: Run, tmp_path: Path) -> None:
    names = ("localhost", "127.0.0.1", "::1", "*.example.org", "bücher.example", "a_b.example")
    files = quic.make_certificate(*names, directory=tmp_path)
    asked = ("localhost", "127.0.0.1", "::1", "any.example.org", "bücher.example", "a_b.example")
    for name in asked:
        verified(run, files, name)


def test_other_names_are_refused(run: Run, tmp_path: Path) -> None:
    files = quic.make_certificate("*.example.org", directory=tmp_path)
    for name in ("localhost", "example.org", "a.b.example.org", "127.0.0.1"):
        with pytest.raises(quic.TlsError, match="is not for"):
            verified(run, files, name)


def test_the_longest_names(run: Run, tmp_path: Path) -> None:
    label = "x" * 63
    longest = ".".join([label] * 3 + ["x" * 61])
    for name in (label, longest):
        files = quic.make_certificate(name, directory=tmp_path)
        assert files.names == (name,)
        verified(run, files, name)


def test_largest_number_of_names(run: Run, tmp_path: Path) -> None:
    names = [f"host{number}.example" for number in range(100)]
    files = quic.make_certificate(*names, directory=tmp_path)
    verified(run, files, names[-1])
    with pytest.raises(quic.ConfigurationError, match="1 to 100 names, not 101"):
        quic.make_certificate(*names, "one.more", directory=tmp_path / "not made")
    assert not (tmp_path / "not made").exists()


@pytest.mark.parametrize("strict", [False, True])
def test_tls_of_the_interpreter(run: Run, tmp_path: Path, strict: bool) -> None:
    files = quic.make_certificate("localhost", "127.0.0.1", directory=tmp_path)
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.ca_file)
    ours.load_cert_chain(files.certificate, files.private_key)
    ours.verify_mode = ssl.CERT_REQUIRED
    theirs = ssl.create_default_context(cafile=files.ca_file)
    theirs.load_cert_chain(files.certificate, files.private_key)
    for context in (ours, theirs):
        if strict:
            context.verify_flags |= ssl.VERIFY_X509_STRICT
        else:
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(4))
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=ours)
        async with server:
            address = server.sockets[0].getsockname()
            for name in ("localhost", "127.0.0.1"):
                reader, writer = await asyncio.open_connection(
                    *address, ssl=theirs, server_hostname=name
                )
                writer.write(b"ping")
                assert await within(reader.readexactly(4)) == b"ping"
                writer.close()

    run(main())


def test_openssl(tmp_path: Path) -> None:
    files = quic.make_certificate("*.example.org", "10.1.2.3", directory=tmp_path)
    verify = ("verify", "-x509_strict", "-CAfile", str(files.ca_file), "-purpose")
    for purpose in ("sslserver", "sslclient"):
        openssl(*verify, purpose, "-verify_hostname", "a.example.org", str(files.certificate))
    openssl(*verify, "sslserver", "-verify_ip", "10.1.2.3", str(files.certificate))
    openssl(*verify, "sslserver", "-attime", str(later(days=364)), str(files.certificate))
    with pytest.raises(subprocess.CalledProcessError):
        openssl(*verify, "sslserver", "-attime", str(later(days=366)), str(files.certificate))
    # The CA may not sign intermediate CAs.
    with pytest.raises(subprocess.CalledProcessError):
        openssl(*verify, "sslserver", str(files.ca_file))


def later(*, days: int) -> int:
    import time

    return int(time.time()) + days * 24 * 3600


def test_aioquic_accepts_the_certificate(run: Run, tmp_path: Path) -> None:
    client = pytest.importorskip("aioquic.asyncio.client")
    configuration = pytest.importorskip("aioquic.quic.configuration")
    files = quic.make_certificate("localhost", directory=tmp_path)

    async def main() -> None:
        async with await quic.serve(None, "127.0.0.1", **shown(files)) as server:
            wanted = configuration.QuicConfiguration(
                alpn_protocols=["test"], server_name="localhost"
            )
            wanted.load_verify_locations(os.fspath(files.ca_file))
            async with client.connect(*server.address[:2], configuration=wanted) as connection:
                await within(connection.ping())

    run(main())


def test_configuration_in_aioquics_shape(tmp_path: Path) -> None:
    files = quic.make_certificate("localhost", directory=tmp_path)
    from ringloop.quic.configuration import QuicConfiguration

    configuration = QuicConfiguration(is_client=False)
    configuration.load_cert_chain(files.certificate, files.private_key)
    configuration.load_verify_locations(os.fspath(files.ca_file))
    assert configuration.server_config() is not None


# --- the CA ---------------------------------------------------------------------------------------


def test_further_certificates_are_of_the_same_authority(run: Run, tmp_path: Path) -> None:
    first = quic.make_certificate("one.example", directory=tmp_path)
    authority = first.ca_file.read_bytes(), first.ca_key.read_bytes()
    second = quic.make_certificate("two.example", directory=tmp_path)
    assert (first.is_new_authority, second.is_new_authority) == (True, False)
    assert (second.ca_file.read_bytes(), second.ca_key.read_bytes()) == authority
    for files, name in ((first, "one.example"), (second, "two.example")):
        verified(run, files, name)


def test_authorities_of_one_name_are_distinguished(run: Run, tmp_path: Path) -> None:
    files = quic.make_certificate("localhost", directory=tmp_path / "one")
    other = quic.make_certificate("localhost", directory=tmp_path / "other")

    async def main() -> None:
        async with await quic.serve(None, "127.0.0.1", **shown(files)) as server:
            with pytest.raises(quic.TlsError, match="an authority that is not trusted here"):
                await quic.open_connection(
                    *server.address[:2],
                    server_name="localhost",
                    ca_file=other.ca_file,
                    alpn=["test"],
                )

    run(main())


@pytest.mark.parametrize("half", ["ca_file", "ca_key"])
def test_half_an_authority(tmp_path: Path, half: str) -> None:
    files = quic.make_certificate("localhost", directory=tmp_path)
    missing: Path = getattr(files, half)
    missing.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        quic.make_certificate("other", directory=tmp_path)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(missing))
    assert not (tmp_path / "other.key").exists()


@pytest.mark.parametrize("days", [1, 397])
def test_authority_from_another_tool(tmp_path: Path, days: int) -> None:
    certificate, key = tmp_path / "authority.pem", tmp_path / "authority.key"
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=elsewhere", "-keyout", str(key), "-out", str(certificate)),
    )
    with pytest.raises(quic.ConfigurationError, match=r"authority\.pem: it was not made here"):
        quic.make_certificate("localhost", directory=tmp_path, days=days)


def test_authority_that_expires_too_early(tmp_path: Path) -> None:
    files = quic.make_certificate("localhost", directory=tmp_path)
    reissue(files, days=30)
    with pytest.raises(quic.ConfigurationError, match="it expires before the certificate would"):
        quic.make_certificate("other", directory=tmp_path)
    assert quic.make_certificate("other", directory=tmp_path, days=29).ca_file == files.ca_file


def reissue(files: quic.CertificateFiles, *, days: int) -> None:
    """Give the CA another expiry date, like a CA made long ago."""
    subject = subprocess.run(
        [
            "openssl",
            "x509",
            "-in",
            str(files.ca_file),
            "-noout",
            "-subject",
            "-nameopt",
            "multiline",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split(" = ")[1]
    openssl(
        *("req", "-x509", "-key", str(files.ca_key), "-subj", f"/CN={subject.strip()}"),
        *("-days", str(days), "-out", str(files.ca_file)),
    )


@pytest.mark.parametrize("text", ["", "no PEM", "é", "-----BEGIN PRIVATE KEY-----\nAAAA\n"])
@pytest.mark.parametrize("half", ["ca_file", "ca_key"])
def test_invalid_authority_files(tmp_path: Path, half: str, text: str) -> None:
    files = quic.make_certificate("localhost", directory=tmp_path)
    damaged: Path = getattr(files, half)
    damaged.write_bytes(text.encode())
    with pytest.raises(quic.ConfigurationError, match=r"the authority .*authority\.pem: "):
        quic.make_certificate("other", directory=tmp_path)
    assert not (tmp_path / "other.key").exists()


def test_key_of_another_authority(tmp_path: Path) -> None:
    files = quic.make_certificate("localhost", directory=tmp_path / "one")
    other = quic.make_certificate("localhost", directory=tmp_path / "other")
    files.ca_key.write_bytes(other.ca_key.read_bytes())
    with pytest.raises(quic.ConfigurationError, match="another certificate's"):
        quic.make_certificate("other", directory=tmp_path / "one")


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.one_thread("the mask of modes is the process's")
@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_keys_are_readable_by_their_owner_only(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        for overwrite in (False, True):
            files = quic.make_certificate("localhost", directory=tmp_path, overwrite=overwrite)
            for key in (files.private_key, files.ca_key):
                assert stat.S_IMODE(key.stat().st_mode) == 0o600
            for public in (files.certificate, files.ca_file):
                assert stat.S_IMODE(public.stat().st_mode) == 0o644 & ~mask
    finally:
        os.umask(before)


@pytest.mark.parametrize("which", ["certificate", "private_key"])
def test_existing_files_are_not_replaced(tmp_path: Path, which: str) -> None:
    files = quic.make_certificate("localhost", directory=tmp_path)
    there: Path = getattr(files, which)
    other = files.private_key if which == "certificate" else files.certificate
    other.unlink()
    kept = there.read_bytes()
    with pytest.raises(FileExistsError, match="overwrite") as caught:
        quic.make_certificate("localhost", directory=tmp_path)
    assert (caught.value.errno, caught.value.filename) == (errno.EEXIST, str(there))
    assert there.read_bytes() == kept
    assert not other.exists()


def test_files_are_replaced_on_request(run: Run, tmp_path: Path) -> None:
    files = quic.make_certificate("localhost", directory=tmp_path)
    before = files.certificate.read_bytes(), files.private_key.read_bytes()
    again = quic.make_certificate("localhost", directory=tmp_path, overwrite=True)
    assert not again.is_new_authority
    assert files.certificate.read_bytes() != before[0]
    assert files.private_key.read_bytes() != before[1]
    assert len(list(tmp_path.iterdir())) == 4
    verified(run, again, "localhost")


def test_links_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "localhost.key").symlink_to(target)
    with pytest.raises(FileExistsError):
        quic.make_certificate("localhost", directory=folder)
    quic.make_certificate("localhost", directory=folder, overwrite=True)
    assert not target.exists()
    assert not (folder / "localhost.key").is_symlink()


def test_directories_are_made(tmp_path: Path) -> None:
    files = quic.make_certificate("localhost", directory=tmp_path / "not" / "yet")
    assert files.certificate == tmp_path / "not" / "yet" / "localhost.pem"
    assert files.certificate.is_file()


def test_directory_is_a_file(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.touch()
    with pytest.raises(FileExistsError) as caught:
        quic.make_certificate("localhost", directory=place)
    assert caught.value.filename == str(place)
    with pytest.raises(NotADirectoryError) as inside:
        quic.make_certificate("localhost", directory=place / "inside")
    assert inside.value.errno == errno.ENOTDIR
    assert str(place) in inside.value.filename


def test_leaf_with_the_name_of_the_authority(run: Run, tmp_path: Path) -> None:
    files = quic.make_certificate("authority", directory=tmp_path)
    assert files.certificate.name == "_authority.pem"
    verified(run, files, "authority")
    quic.make_certificate("authority", directory=tmp_path, overwrite=True)


def test_files_are_neither_hidden_nor_options(tmp_path: Path) -> None:
    for name in ("::1", "*.example.org", "fe80::1%lo"):
        stem = quic.make_certificate(name, directory=tmp_path).certificate.name
        assert stem[0] not in ".-"
        assert not set(stem) & set("*:%/")


def test_concurrent_makers_in_one_directory(tmp_path: Path) -> None:
    made: list[quic.CertificateFiles] = []

    def make(number: int) -> None:
        made.append(quic.make_certificate(f"host{number}", directory=tmp_path))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(files.is_new_authority for files in made) == 1
    for files in made:
        openssl("verify", "-CAfile", str(files.ca_file), str(files.certificate))


# --- names and days -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            ".",
            "a..b",
            ".a",
            "a.",
            "-a",
            "a-",
            "a b",
            "a/b",
            "../a",
            "a\0b",
            "a\nb",
            "*",
            "*a.b.c",
        ),
        *("a.*.b", "*.*.b", "**.a.b", "https://localhost", "localhost:443", "[::1]", "10.0.0.256"),
        *("x" * 64, ".".join(["x" * 63] * 4), "ü" * 64, "a@b.example", "1.2.3", "\u2024.example"),
    ],
)
def test_invalid_names_of_certificates(tmp_path: Path, name: str) -> None:
    with pytest.raises(quic.ConfigurationError, match="is not a valid name") as caught:
        quic.make_certificate("localhost", name, directory=tmp_path / "certificates")
    assert repr(name) in str(caught.value)
    assert not (tmp_path / "certificates").exists()


def test_unsupported_wildcards(tmp_path: Path) -> None:
    for name in ("*.localhost", "*.org"):
        with pytest.raises(quic.ConfigurationError, match="two labels or more after it"):
            quic.make_certificate(name, directory=tmp_path)


@pytest.mark.parametrize("name", [b"localhost", None, 1, ["localhost"], Path("localhost")])
def test_names_of_other_types(tmp_path: Path, name: Any) -> None:
    with pytest.raises(TypeError, match="must be str"):
        quic.make_certificate(name, directory=tmp_path)


def test_no_name(tmp_path: Path) -> None:
    with pytest.raises(quic.ConfigurationError, match="1 to 100 names, not 0"):
        quic.make_certificate(directory=tmp_path)


def test_names_are_encoded_in_the_certificate(tmp_path: Path) -> None:
    names = ("LocalHost", "localhost", "BÜCHER.example", "*.Example.org", "fe80::1%lo", "0::1")
    files = quic.make_certificate(*names, ip_address("127.0.0.1"), directory=tmp_path)
    assert files.names == (
        *("localhost", "xn--bcher-kva.example", "*.example.org", "fe80::1", "::1", "127.0.0.1"),
    )


@pytest.mark.parametrize("days", [0, -1, 398, 10**30])
def test_days_out_of_range(tmp_path: Path, days: int) -> None:
    with pytest.raises(quic.ConfigurationError, match=rf"days is {days}: give 1 to 397"):
        quic.make_certificate("localhost", directory=tmp_path, days=days)


@pytest.mark.parametrize("days", [1.5, "30", None, True, float("nan")])
def test_days_of_other_types(tmp_path: Path, days: Any) -> None:
    with pytest.raises(TypeError, match="days must be a whole number"):
        quic.make_certificate("localhost", directory=tmp_path, days=days)


# --- the command ----------------------------------------------------------------------------------


def command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ringloop.quic", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_command(run: Run, tmp_path: Path) -> None:
    done = command("certificate", "localhost", "127.0.0.1", "--days", "30", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the authority, for clients to trust (new)" in done.stdout
    server, client = done.stdout.splitlines()[-2:]
    assert "certificate='localhost.pem', private_key='localhost.key'" in server
    assert "'localhost', port, ca_file='authority.pem'" in client
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"localhost.pem", "localhost.key", "authority.pem", "authority.key"}
    again = command("certificate", "localhost", folder=tmp_path)
    assert again.returncode == 1
    assert "localhost.pem" in again.stderr
    assert "Traceback" not in again.stderr
    replaced = command("certificate", "localhost", "--overwrite", folder=tmp_path)
    assert replaced.returncode == 0, replaced.stderr
    assert "(kept)" in replaced.stdout


@pytest.mark.one_thread("it looks at what the process prints")
def test_command_reports_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--directory", str(tmp_path)]
    for words, status, text in (
        (["certificate", *place], 2, "NAME"),
        (["certificate", "a b", *place], 1, "'a b' is not a valid name"),
        (["certificate", "localhost", "--days", "398", *place], 1, "give 1 to 397"),
        (["certificate", "localhost", "--days", "x", *place], 2, "invalid int value"),
        (["certificate", "localhost", "--directory", "/proc/none"], 1, "/proc/none"),
        (["nothing"], 2, "nothing"),
    ):
        assert __main__.main(words) == status
        assert text in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert __main__.main(["certificate", "--help"]) == 0
    assert "--overwrite" in capsys.readouterr().out
