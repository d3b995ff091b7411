"""Keywords are shown, typed and documented; unknown ones are refused by name."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop._native import quic as native
from ringloop.quic import keywords
from ringloop.quic._driver import bind
from ringloop.quic.asyncio import connect as shaped_connect
from ringloop.quic.asyncio import serve as shaped_serve
from ringloop.quic.compat.aiopquic import configuration as aiopquic
from ringloop.quic.configuration import QuicConfiguration
from tests.quic.support import served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

PACKAGE = Path(__file__).resolve().parents[2] / "python"
# For each function: its class of keywords, and the native classes with their defaults.
SHOWN: dict[Any, tuple[Any, tuple[Any, ...]]] = {
    quic.connect: (keywords.ConnectKeywords, (native.ClientConfig, native.Endpoint)),
    quic.open_connection: (keywords.ConnectKeywords, (native.ClientConfig, native.Endpoint)),
    quic.serve: (keywords.ServeKeywords, (native.ServerConfig, native.Endpoint)),
    quic.Endpoint: (keywords.EndpointKeywords, (native.Endpoint,)),
    quic.ClientConfig: (keywords.ClientKeywords, (native.ClientConfig,)),
    quic.ServerConfig: (keywords.ServerKeywords, (native.ServerConfig,)),
}


# --- signatures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("function", SHOWN, ids=lambda function: function.__name__)
def test_signatures_show_the_keywords(function: Any) -> None:
    kind, makers = SHOWN[function]
    shown = inspect.signature(function).parameters
    defaults = {
        name: parameter.default
        for maker in makers
        for name, parameter in inspect.signature(maker).parameters.items()
    }

    assert kind.__annotations__.keys() <= shown.keys()
    for name in kind.__annotations__:
        assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[name].default == defaults[name]
    assert inspect.Parameter.VAR_KEYWORD not in {one.kind for one in shown.values()}


def test_every_keyword_of_the_native_configurations_is_typed() -> None:
    for function in (quic.ClientConfig, quic.ServerConfig):
        kind, _ = SHOWN[function]
        assert kind.__annotations__.keys() == inspect.signature(function).parameters.keys()
    connecting = keywords.ConnectKeywords.__annotations__.keys()
    # `connect` has an argument of that name.
    assert keywords.ClientKeywords.__annotations__.keys() - connecting == {"early_data"}


def test_public_functions_have_explicit_parameters() -> None:
    def functions(module: Any) -> Any:
        for name in getattr(module, "__all__", ()):
            public = getattr(module, name)
            if inspect.isfunction(public):
                yield public
            elif inspect.isclass(public):
                yield from filter(inspect.isfunction, vars(public).values())

    seen = [function for module in public_modules() for function in functions(module)]

    assert quic.connect in seen
    assert shaped_serve in seen
    for function in seen:
        plain = inspect.getfullargspec(function)
        hint = function.__annotations__.get(plain.varkw) if plain.varkw else None
        assert hint is None or str(hint).startswith("Unpack["), function


def public_modules() -> list[Any]:
    found = pkgutil.walk_packages(quic.__path__, "ringloop.quic.")
    names = [one.name for one in found if "._" not in one.name]
    return [quic, *map(importlib.import_module, names)]


def test_hints_can_be_resolved() -> None:
    for kind, _ in SHOWN.values():
        assert typing.get_type_hints(kind).keys() == kind.__annotations__.keys()


# --- descriptions ---------------------------------------------------------------------------------


def descriptions() -> dict[str, dict[str, str]]:
    """The description below each field of the classes of `keywords`, by class and field."""
    tree = ast.parse(Path(inspect.getfile(keywords)).read_text(encoding="utf-8"))
    found: dict[str, dict[str, str]] = {}
    for kind in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        fields = found.setdefault(kind.name, {})
        for field, text in zip(kind.body, [*kind.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                has_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                fields[field.target.id] = str(text.value.value) if has_text else ""  # type: ignore[union-attr]
    return found


# Numbers have a unit.
UNITS = re.compile(r"Seconds|Bytes|Streams|Connections|Address tokens|Datagrams|version|Versions")
NUMERIC = re.compile(r"\b(?:int|float)\b")


@pytest.mark.parametrize("function", SHOWN, ids=lambda function: function.__name__)
def test_keywords_are_described(function: Any) -> None:
    kind, _ = SHOWN[function]
    told = descriptions()
    classes = [base for base in told if hasattr(keywords, base)]
    defaults = inspect.signature(function).parameters
    for name, annotation in kind.__annotations__.items():
        # From its own class, if that has one: a server's `sessions` differ from a client's.
        own = [told[one][name] for one in classes if name in told[one] and is_of(kind, one, name)]
        assert own, f"{name} has no description"
        text = " ".join(own[0].split())
        default = defaults[name].default
        assert re.search(rf"Default: {re.escape(repr(default))}", text), (name, default, text)
        if NUMERIC.search(annotation.__forward_arg__):
            assert UNITS.search(text), (name, text)
            assert re.search(r"\d", text.partition("Default")[0]), f"{name}: its bounds?"


def is_of(kind: Any, base: str, name: str) -> bool:
    wanted = getattr(keywords, base).__annotations__
    own = kind.__annotations__
    return name in own and wanted.keys() <= own.keys() and wanted[name] == own[name]


# --- refused keywords -----------------------------------------------------------------------------

UNKNOWN = {
    "cafile": "ca_file",
    "ca_fil": "ca_file",
    "capath": "ca_path",
    "cadata": "ca_data",
    "alpn_protocols": "alpn",
    "certfile": "certificate",
    "keyfile": "private_key",
    "max_dat": "max_data",
    "max_idle_timeout": "idle_timeout",
    "idletimeout": "idle_timeout",
    "keep_alive_interval": "keep_alive",
    "congestion_control_algorithm": "congestion",
    "secrets_log_file": "keylog",
    "quic_logger": "qlog",
}
CLIENTS = {"verify_mode": "verify", "check_hostname": "verify", "ssl": "ca_file"}
SERVERS = {"verify_mode": "client_auth", "ssl": "ca_file", "sni_callback": "sni"}


def said(function: str, name: str, meant: str | None) -> str:
    text = f"{function}() got an unexpected keyword argument '{name}'"
    return text if meant is None else f"{text}. Did you mean '{meant}'?"


def test_unknown_keywords_of_configurations() -> None:
    for make, meant in ((native.ClientConfig, CLIENTS), (native.ServerConfig, SERVERS)):
        for name, other in {**UNKNOWN, **meant, "zzz": None}.items():
            with pytest.raises(TypeError) as caught:
                make(**{name: "x"})  # type: ignore[arg-type]
            assert str(caught.value) == said(make.__name__, name, other)


def test_unknown_keywords_are_reported_before_other_errors() -> None:
    with pytest.raises(TypeError, match=r"'cafile'\. Did you mean 'ca_file'"):
        native.ClientConfig(max_data=0, cafile="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'certfile'\. Did you mean 'certificate'"):
        native.ServerConfig(alpn="h3", certfile="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'socket_bufer'\. Did you mean 'socket_buffer'"):
        native.Endpoint(retry="perhaps", socket_bufer=1)  # type: ignore[call-arg, arg-type]


def test_unknown_keywords_of_functions(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        clients = {**UNKNOWN, **CLIENTS, "server_hostname": "server_name", "zzz": None}
        for name, meant in clients.items():
            with pytest.raises(TypeError) as caught:
                quic.connect("localhost", 1, **{name: "x"})  # type: ignore[arg-type]
            assert str(caught.value) == said("connect", name, meant)
            with pytest.raises(TypeError) as caught:
                await quic.open_connection("localhost", 1, **{name: "x"})  # type: ignore[arg-type]
            assert str(caught.value) == said("open_connection", name, meant)
        for name, meant in {**UNKNOWN, **SERVERS, "create_protocol": "handler"}.items():
            with pytest.raises(TypeError) as caught:
                await quic.serve(**{name: "x"})  # type: ignore[arg-type]
            assert str(caught.value) == said("serve", name, meant)
        with bind("127.0.0.1") as sock:
            for name, meant in {"segment_max": "segments_max", "fd": None, "events": None}.items():
                with pytest.raises(TypeError) as caught:
                    quic.Endpoint(sock, **{name: 1})  # type: ignore[arg-type]
                assert str(caught.value) == said("Endpoint.__init__", name, meant)

    run(main())


def test_other_apis_refuse_unknown_keywords_too(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match="unexpected keyword argument 'ca_file'"):
            shaped_connect("localhost", 1, ca_file="x")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'certificate'"):
            await shaped_serve("localhost", 1, certificate="x")  # type: ignore[call-arg]

    run(main())


FIELDS = {
    "ca_file": "cafile",
    "ca_fle": "cafile",
    "alpn": "alpn_protocols",
    "certfile": "certificate_file",
    "keyfile": "private_key_file",
    "keep_alive": "keep_alive_interval",
    "congestion": "congestion_control_algorithm",
    "qlog": "quic_logger",
    "initial_mtu": "max_datagram_size",
    "idle_time_out": "idle_timeout",
    "zzz": None,
}


@pytest.mark.parametrize("kind", [QuicConfiguration, aiopquic.QuicConfiguration])
def test_unknown_fields_of_configurations(kind: Any) -> None:
    for name, meant in FIELDS.items():
        with pytest.raises(TypeError) as caught:
            kind(**{name: "x"})
        assert str(caught.value) == said("QuicConfiguration.__init__", name, meant)
    made = kind(is_client=False, idle_timeout=5.0)
    assert (made.is_client, made.idle_timeout) == (False, 5.0)
    assert "idle_timeout" in inspect.signature(kind).parameters
    assert dataclasses.replace(made, max_data=7).idle_timeout == 5.0
    assert kind(["h3"]).alpn_protocols == ["h3"]


def test_keywords_that_are_set_elsewhere(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        config = native.ClientConfig(ca_file=certificates.authority, alpn=["test"])
        async with served(certificates) as server:
            port = server.address[1]
            with pytest.raises(TypeError, match="max_data: set it in the configuration"):
                await quic.open_connection("127.0.0.1", port, configuration=config, max_data=1)
            async with quic.Endpoint(bind("127.0.0.1")) as own:
                with pytest.raises(
                    TypeError, match="gso: the endpoint's socket is already configured"
                ):
                    await quic.open_connection(
                        *("127.0.0.1", port), configuration=config, endpoint=own, gso=False
                    )
                connected = quic.connect(
                    *("127.0.0.1", port),
                    configuration=config,
                    endpoint=own,
                    server_name="localhost",
                )
                async with connected as connection:
                    assert await within(connection.ping()) > 0

    run(main())


# --- type checkers --------------------------------------------------------------------------------

GOOD = """
from pathlib import Path
from typing import Unpack

from ringloop import quic
from ringloop.quic.keywords import ConnectKeywords


async def main(**keywords: Unpack[ConnectKeywords]) -> None:
    async with quic.connect("::1", 1, ca_file="x", alpn=["h3"], idle_timeout=30, gso=False) as one:
        await one.ping()
    async with quic.connect("::1", 1, **keywords):
        pass
    await quic.open_connection("::1", 1, ca_file=Path("x"), idle_timeout=None, early_data=True)
    await quic.serve(
        certificate="x",
        private_key=b"y",
        client_auth="required",
        retry="auto",
        max_connections=5,
        sni={"a.example": ("x", None)},
        keylog=print,
    )
    quic.ClientConfig(ca_data=[b"x", "y"], qlog=Path("x"), congestion="bbr")
    quic.ServerConfig(certificate=[b"x", b"y"], private_key="z", password=lambda: "w")
"""
# The error of each line, as mypy reports it.
BAD = {
    'quic.connect("::1", 1, cafile="x")': 'did you mean "ca_file"',
    'quic.connect("::1", 1, idle_timeout="30")': 'expected "float | None"',
    'await quic.open_connection("::1", 1, cafile="x")': 'did you mean "ca_file"',
    'await quic.open_connection("::1", 1, idle_timeout="30")': 'expected "float | None"',
    'await quic.serve(cafile="x")': 'did you mean "ca_file"',
    'await quic.serve(idle_timeout="30")': 'expected "float | None"',
    'await quic.serve(retry="perhaps")': "Literal['never', 'always', 'auto']",
    "await quic.serve(certificate=5)": 'incompatible type "int"',
    'quic.ClientConfig(cafile="x")': 'did you mean "ca_file"',
    'quic.ClientConfig(idle_timeout="30")': 'expected "float | None"',
    "quic.ServerConfig(max_date=5)": "did you mean",
    'quic.ServerConfig(max_data="5")': 'expected "int"',
    "quic.Endpoint(sock, segment_max=1)": 'did you mean "segments_max"',
    "quic.Endpoint(sock, events=True)": 'Unexpected keyword argument "events"',
    'asyncio.connect("::1", 1, ca_file="x")': 'Unexpected keyword argument "ca_file"',
    'QuicConfiguration(ca_file="x")': 'did you mean "cafile"',
    'QuicConfiguration(idle_timeout="30")': 'expected "float | None"',
    'compat.connect("::1", 1, ca_file="x")': 'Unexpected keyword argument "ca_file"',
    'await compat.serve("::1", 1, retry=True)': 'Unexpected keyword argument "retry"',
}
BAD_HEAD = """
import socket

from ringloop import quic
from ringloop.quic import asyncio
from ringloop.quic.compat.aiopquic import asyncio as compat
from ringloop.quic.configuration import QuicConfiguration


async def main(sock: socket.socket) -> None:
"""


@pytest.mark.sources
@pytest.mark.timeout(300)
def test_type_checker_refuses_invalid_calls(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(GOOD)
    bad.write_text(BAD_HEAD + "".join(f"    {line}\n" for line in BAD))
    settings = tmp_path / "mypy.ini"
    # Our own files are checked elsewhere.
    settings.write_text(
        f"[mypy]\nmypy_path = {PACKAGE}\nstrict = True\n[mypy-ringloop.*]\nignore_errors = True\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file", str(settings), "--no-error-summary"),
            *("--hide-error-context", "--no-pretty", str(good), str(bad)),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said_of = {name: [] for name in BAD}  # type: dict[str, list[str]]
    lines = bad.read_text().splitlines()
    for told in done.stdout.splitlines():
        match = re.match(r".*?(\w+)\.py:(\d+): error: (.*)", told)
        if match is None:
            continue
        assert match[1] == "bad", told
        said_of[lines[int(match[2]) - 1].strip()].append(match[3])
    assert not done.stderr
    for line, wanted in BAD.items():
        assert any(wanted in one for one in said_of[line]), (line, said_of[line], done.stdout)
