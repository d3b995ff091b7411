"""Booleans of the package's own interfaces are bools: "false" from a file or the environment is true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringloop import fs, h3, quic, webtransport
from ringloop.serve import Server, Settings
from ringloop.serve import run as serve_run
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

PLACE = ("127.0.0.1", 0)
FILES: dict[str, Any] = {"certificate": "c", "private_key": "k"}


async def nothing(*_: object) -> None:
    """Do nothing."""


CALLS: dict[str, Callable[..., Any]] = {
    "quic.connect early_data": lambda own, **given: quic.connect(*PLACE, **given).__aenter__(),
    "quic.open_connection early_data": lambda own, **given: quic.open_connection(*PLACE, **given),
    "quic.serve reuse_port": lambda own, **given: quic.serve(nothing, **own, **given),
    "h3.serve reuse_port": lambda own, **given: h3.serve(nothing, **own, **given),
    "webtransport.serve reuse_port": lambda own, **given: webtransport.serve(
        nothing, **own, **given
    ),
    "quic.serve migration": lambda own, **given: quic.serve(nothing, **own, **given),
    "quic.serve gso": lambda own, **given: quic.serve(nothing, **own, **given),
    "quic.connect verify": lambda own, **given: quic.connect(*PLACE, **given).__aenter__(),
    "h3.connect ack_frequency": lambda own, **given: h3.connect(*PLACE, **given).__aenter__(),
    "h3.Priority incremental": lambda own, **given: str(h3.Priority(**given)),
    "fs.write_bytes durable": lambda own, **given: fs.write_bytes("f", b"", **given),
    "fs.write_text durable": lambda own, **given: fs.write_text("f", "", **given),
    "fs.Path.write_bytes durable": lambda own, **given: fs.Path("f").write_bytes(b"", **given),
    "fs.Path.write_text durable": lambda own, **given: fs.Path("f").write_text("", **given),
    "quic.make_certificate overwrite": lambda own, **given: quic.make_certificate("a", **given),
    "serve.Settings access_log": lambda own, **given: Settings(**FILES, **given),
    "serve.Server is_factory": lambda own, **given: Server(nothing, Settings(**FILES), **given),
    "serve.run is_factory": lambda own, **given: serve_run(nothing, Settings(**FILES), **given),
}


@pytest.mark.parametrize("value", ["false", 1, None])
@pytest.mark.parametrize("call", CALLS)
def test_bools_of_another_type_are_refused_by_name(
    run: Run,
    certificates: Certificates,
    call: str,
    value: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    certificate, key = certificates.issue()
    own = {"host": "127.0.0.1", "certificate": certificate, "private_key": key}
    name = call.rpartition(" ")[2]

    async def main() -> None:
        with pytest.raises(TypeError, match=name):
            made = CALLS[call](own, **{name: value})
            await within(made)

    run(main())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["false", 1, None])
def test_bools_of_open_objects_are_refused_by_name(
    run: Run, certificates: Certificates, value: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        certificate, key = certificates.issue()
        server = await h3.serve(nothing, *PLACE, certificate=certificate, private_key=key)
        opening = quic.open_connection(
            *server.address[:2],
            ca_file=certificates.authority,
            server_name="localhost",
            alpn=["h3"],
        )
        async with server, await within(opening) as connection:
            for one in (server, connection):
                with pytest.raises(TypeError, match="linger must be a bool, not"):
                    await within(one.wait_closed(linger=value))  # type: ignore[attr-defined]
            with pytest.raises(TypeError, match="unidirectional"):
                await within(connection.open_stream(unidirectional=value))
        for mode in ("w", "wb"):
            async with fs.open(tmp_path / "file", mode) as file:
                with pytest.raises(TypeError, match="datasync must be a bool, not"):
                    await within(file.fsync(datasync=value))

    run(main())


@pytest.mark.parametrize("value", ["", 0, None, "false"])
def test_webtransport_of_h3_is_a_bool_or_limits(
    run: Run, certificates: Certificates, value: Any
) -> None:
    async def main() -> None:
        certificate, key = certificates.issue()
        with pytest.raises(TypeError, match=r"webtransport is .*: give a bool, or SessionLimits"):
            await h3.serve(
                nothing, *PLACE, webtransport=value, certificate=certificate, private_key=key
            )

    run(main())
