"""Prometheus, OpenTelemetry, the socket of `top`, the page: what others see of the metrics."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ringloop
from ringloop import metrics
from ringloop._commands import top
from ringloop.metrics import _serving
from tests import support
from tests.support import wait_until_blocking

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.one_thread("sockets, folders and the environment of the process")
SAMPLE = re.compile(r'^([a-z_]+)(\{([a-z]+="(\\.|[^"\\])*",?)*\})? (-?[0-9.e+-]+|\+Inf)$')


@pytest.fixture(autouse=True)
def runtime_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of sockets of the test's own."""
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run" / "ringloop"


@pytest.fixture
def open_loop() -> Iterator[ringloop.Loop]:
    """A loop that has done something."""
    loop = ringloop.Loop(driver="epoll")
    loop.run_until_complete(asyncio.sleep(0.001))
    yield loop
    loop.close()


# --- Prometheus -----------------------------------------------------------------------------------


def test_prometheus_text_is_well_formed(open_loop: ringloop.Loop) -> None:
    number = open_loop.metrics().loop
    text = metrics.prometheus()
    assert text.endswith("\n")
    types: dict[str, str] = {}
    values: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            assert SAMPLE.match(line), line
            name, _, value = line.rpartition(" ")
            assert name not in values
            values[name] = float(value)
            base = re.sub(r"_(bucket|sum|count)$", "", name.partition("{")[0])
            assert base in types or name.partition("{")[0] in types
    label = f'{{loop="{number}"}}'
    found = open_loop.metrics()
    assert values[f"ringloop_callbacks_total{label}"] == found.callbacks
    assert values[f"ringloop_lag_seconds_count{label}"] == found.lag.count
    assert values[f'ringloop_lag_seconds_bucket{{loop="{number}",le="+Inf"}}'] == found.lag.count
    assert values[f"ringloop_lag_seconds_sum{label}"] == pytest.approx(found.lag.sum)
    buckets = [
        value for name, value in values.items() if f'lag_seconds_bucket{{loop="{number}"' in name
    ]
    assert buckets == sorted(buckets)
    assert types["ringloop_lag_seconds"] == "histogram"
    assert 'driver="epoll"' in text


def test_prometheus_escapes_labels_and_takes_a_prefix() -> None:
    from ringloop.metrics import _prometheus

    assert _prometheus._escaped('a"b\\c\nd') == 'a\\"b\\\\c\\nd'
    assert _prometheus._escaped("lone \udcff") == "lone ?"
    assert "mine_turns_total" in metrics.prometheus("mine")


@pytest.mark.parametrize("prefix", ["", "1st", "my-service", "a b", "ü", "a\n"])
def test_prometheus_refuses_prefixes_that_are_no_names(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix must be a name of Prometheus"):
        metrics.prometheus(prefix)


def test_names_of_prometheus_keep_its_conventions(open_loop: ringloop.Loop) -> None:
    del open_loop
    for line in metrics.prometheus().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert re.fullmatch(r"[a-z_:][a-z0-9_:]*", name)
            # Counters end in _total, and nothing else does; base units only.
            assert name.endswith("_total") == (kind == "counter"), line
            assert not re.search(r"_(milliseconds|ms|ns|kilobytes|percent)(_|$)", name)


# --- OpenTelemetry --------------------------------------------------------------------------------


class Meter:
    """Records what instruments are made, and reads them as a collector does."""

    def __init__(self) -> None:
        self.read: dict[str, Any] = {}

    def create(self, name: str, callbacks: list[Any], unit: str, description: str) -> None:
        assert description.endswith(".")
        assert unit in {"1", "s", "By"}
        assert name not in self.read
        (self.read[name],) = callbacks

    create_observable_counter = create_observable_gauge = create


def test_opentelemetry_instruments_read_every_loop(open_loop: ringloop.Loop) -> None:
    pytest.importorskip("opentelemetry.metrics")
    meter = Meter()
    metrics.opentelemetry(meter)
    number = open_loop.metrics().loop

    def values(name: str) -> list[Any]:
        found = meter.read[name](None)
        return [one.value for one in found if one.attributes["ringloop.loop"] == number]

    assert values("ringloop.turns") == [open_loop.metrics().turns]
    assert values("ringloop.lag.count") == [open_loop.metrics().lag.count]
    assert len(values("ringloop.lag")) == 3
    assert values("ringloop.received_bytes") == [0]
    # By the application's own provider, which there is none of here.
    metrics.opentelemetry()


def test_opentelemetry_is_an_optional_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "opentelemetry":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="needs opentelemetry-api, which is not installed"):
        metrics.opentelemetry()


# --- the socket, and `top` ------------------------------------------------------------------------


def test_socket_is_private_and_removed(runtime_folder: Path) -> None:
    with metrics.serve() as serving:
        path = Path(serving.address)
        assert path == runtime_folder / f"{os.getpid()}.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert serving.url is None
        source = top.Source(path)
        assert source.ask()["pid"] == os.getpid()
        assert source.ask()["pid"] == os.getpid()
        source.close()
    assert not path.exists()
    serving.close()


def test_socket_that_a_killed_process_left_is_replaced(runtime_folder: Path) -> None:
    path = _serving.checked_folder() / f"{os.getpid()}.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    assert path.exists()
    metrics.serve().close()


def test_socket_is_served_once(tmp_path: Path, program: Any) -> None:
    with metrics.serve(tmp_path / "a.sock") as serving:
        assert metrics.serve(tmp_path / "a.sock") is serving
    assert not serving.is_open()
    metrics.serve(tmp_path / "a.sock").close()
    # Another process has it.
    path = _serving.folder() / f"{program.pid}.sock"
    with pytest.raises(OSError, match=re.escape(str(path))):
        metrics.serve(path)


def test_program_runs_though_its_metrics_cannot_be_offered(runtime_folder: Path) -> None:
    runtime_folder.write_text("no folder")
    command = [sys.executable, "-c", "import ringloop; ringloop.Loop().close(); print('ran')"]
    done = subprocess.run(
        command,
        env=os.environ | {"RINGLOOP_TOP": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "ran\n"
    assert "RINGLOOP_TOP" in done.stderr
    assert str(runtime_folder) in done.stderr


def test_folder_that_others_may_enter_is_refused(runtime_folder: Path) -> None:
    runtime_folder.mkdir(mode=0o755)
    runtime_folder.chmod(0o755)
    with pytest.raises(PermissionError, match="is not a folder that only this user may enter"):
        metrics.serve()


def test_clients_are_bounded(tmp_path: Path) -> None:
    with metrics.serve(tmp_path / "a.sock") as serving:
        sources = [top.Source(Path(serving.address)) for _ in range(_serving.CLIENTS_MAX)]
        for source in sources:
            source.ask()
        extra = top.Source(Path(serving.address))
        with pytest.raises(top.NotOffered):
            extra.ask()
        extra.close()
        sources.pop().close()

        def is_served() -> bool:
            source = top.Source(Path(serving.address))
            try:
                return bool(source.ask())
            except top.NotOffered:
                return False
            finally:
                source.close()

        wait_until_blocking(is_served, "a place for another client")
        for source in sources:
            source.close()


PROGRAM = """
import asyncio, sys, time, ringloop
async def main():
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    loop.set_slow_callback_hook(0.01, lambda what, seconds: None)
    while True:
        time.sleep(0.02)
        await asyncio.sleep(0.02)
ringloop.run(main())
"""


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    """A process that offers its metrics by the environment."""
    environment = os.environ | {"RINGLOOP_TOP": "1", "RINGLOOP_DRIVER": "epoll"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def run_top(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "ringloop", "top", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == status, done.stderr
    return done


def test_top_shows_a_process_by_its_id_or_the_only_one(program: Any, runtime_folder: Path) -> None:
    for arguments in ((str(program.pid),), ()):
        text = run_top(*arguments, "--once", "--interval", "0.3").stdout
        assert f"process {program.pid}" in text
        row = next(line for line in text.splitlines() if line.startswith("1 MainThread"))
        cells = row.split()
        assert cells[2] == "epoll"
        # It sleeps for half of its time, and computes for the other.
        assert 5 < float(cells[3].rstrip("%")) < 99
        assert "slow callbacks, latest first:" in text
        assert "main()" in text
    found = json.loads(run_top(str(program.pid), "--json").stdout)
    assert found["pid"] == program.pid
    assert found["loops"][0]["slow_callbacks"]


def test_top_says_why_there_is_nothing_to_see(program: Any) -> None:
    text = run_top(str(os.getpid()), status=1).stderr
    assert "start it with RINGLOOP_TOP=1" in text
    assert "ringloop.metrics.serve()" in text
    with metrics.serve():
        assert "which process?" in run_top(status=1).stderr
    program.send_signal(signal.SIGKILL)
    program.wait()
    assert "there is no process" in run_top("4194304", status=1).stderr
    assert "no process of this user offers" in run_top(status=1).stderr
    assert "No such file" in run_top("--path", "/nowhere", status=1).stderr
    run_top("--interval", "0", status=2)
    for wrong in ("0", "x", "99999999999999999999"):
        assert f"{wrong} is not the id of a process" in run_top(wrong, status=2).stderr


def test_top_ends_with_its_process(program: Any) -> None:
    source = top.Source(_serving.folder() / f"{program.pid}.sock")
    assert source.ask()
    program.send_signal(signal.SIGKILL)
    program.wait()
    with pytest.raises(top.NotOffered, match="has ended"):
        source.ask()
    source.close()


def test_screen_has_no_control_characters_of_the_program(open_loop: ringloop.Loop) -> None:
    del open_loop
    report = _serving.report()
    report["program"] = "a\x1b[2Jb"
    assert top.lines(report, report)[0].startswith("a?[2Jb, process")


def test_screen_of_new_and_stopped_loops(open_loop: ringloop.Loop) -> None:
    now = _serving.report()
    text = "\n".join(top.lines(now, {**now, "loops": []}))
    assert f"{open_loop.metrics().loop} stopped" in text
    assert "no loop is open" in "\n".join(top.lines({**now, "loops": []}, now))


def test_environment_offers_nothing_unless_it_is_asked_to(runtime_folder: Path) -> None:
    for value in ("", "0"):
        subprocess.run(
            [sys.executable, "-c", "import ringloop; ringloop.Loop().close()"],
            env=os.environ | {"RINGLOOP_TOP": value},
            check=True,
            timeout=60,
        )
    assert not runtime_folder.exists()


# --- HTTP -----------------------------------------------------------------------------------------


def fetched(url: str) -> tuple[str, str]:
    with urllib.request.urlopen(url, timeout=support.PATIENCE_SECONDS) as response:
        return response.headers["Content-Type"], response.read().decode()


def test_http_has_the_page_prometheus_and_json(open_loop: ringloop.Loop) -> None:
    with metrics.serve_http() as serving:
        assert serving.url is not None
        kind, page = fetched(serving.url)
        assert kind.startswith("text/html")
        assert "metrics.json" in page
        # Nothing is loaded from elsewhere.
        assert "http://" not in page
        assert "https://" not in page
        kind, text = fetched(f"{serving.url}metrics")
        assert kind == "text/plain; version=0.0.4; charset=utf-8"
        assert "ringloop_turns_total" in text
        kind, text = fetched(f"{serving.url}metrics.json?x=1")
        number = open_loop.metrics().loop
        assert number in [loop["loop"] for loop in json.loads(text)["loops"]]
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            fetched(f"{serving.url}other")
        missing.value.close()


def test_http_takes_an_address_of_ipv6() -> None:
    with metrics.serve_http("::1") as serving:
        assert serving.url is not None
        assert serving.url.startswith("http://[::1]:")
        assert "ringloop_turns_total" in fetched(f"{serving.url}metrics")[1]


def test_http_port_in_use_is_an_error() -> None:
    with metrics.serve_http() as serving, pytest.raises(OSError, match="in use"):
        metrics.serve_http(port=serving.address[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_does_not_touch_the_parents_server(tmp_path: Path) -> None:
    with metrics.serve(tmp_path / "a.sock") as serving:
        pid = os.fork()
        if pid == 0:
            serving.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        source = top.Source(Path(serving.address))
        assert source.ask()
        source.close()
