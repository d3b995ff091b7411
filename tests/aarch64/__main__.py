"""Build for aarch64 Linux and run it emulated: python -m tests.aarch64 [--quick] [--wheel FOLDER]

The engine's and the coroutines' tests run on the readiness driver: qemu's emulation of a process has no
io_uring. What the ring shares with the kernel is asserted by the compiler (`sys/uring/abi.rs`), in this
build too. With `--wheel`, a wheel from that folder is imported by an emulated CPython and tried.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.aarch64 import emulator
from tests.aarch64.expected import BY_REASON, PROGRAMS_BY_REASON
from tests.interop.installing import CHECKOUT, UnavailableError, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aarch64.emulator import Emulator

TARGET = "aarch64-unknown-linux-gnu"
# The oldest C library that wheels run on: the first with statx.
LIBRARY = "2.28"
SMOKE = CHECKOUT / "tools" / "wheels" / "smoke.py"
# What CI has time for: the layout of what the ring shares, readiness and sockets.
CHECK = ("readiness", "net")
# A package of these programs alone, without what other tests of the engine depend on.
CHECK_PACKAGE = """\
[package]
name = "run"
edition = "2024"
[lib]
path = "lib.rs"
test = false
[dependencies]
libc = "0.2"
ringloop = {{ path = "{crates}/ringloop" }}
ringloop-testing = {{ path = "{crates}/ringloop-testing" }}
[workspace]
[profile.dev]
debug = false
"""
CHECK_PROGRAM = """\
[[test]]
name = "{name}"
path = "{crates}/ringloop/tests/{name}.rs"
"""
# The modules' own tests, sockets and streams of each kind.
QUICK = {"ringloop": ("--lib", "--test", "net", "--test", "unix", "--test", "datagrams")}


def whole() -> dict[str, tuple[str, ...]]:
    """All tests of the engine and the coroutines, but for programs that cannot be emulated."""
    for reason, names in PROGRAMS_BY_REASON.items():
        print(f"   left out: {reason}: {', '.join(names)}", flush=True)
    return {package: ("--lib", *programs(package)) for package in ("ringloop", "ringloop-coro")}


def programs(package: str) -> Iterator[str]:
    """Options for its test programs; some need a feature, and do not run."""
    folder = CHECKOUT / "crates" / package
    targets = tomllib.loads((folder / "Cargo.toml").read_text()).get("test", [])
    left_out = {target["name"] for target in targets if "required-features" in target}
    left_out.update(name for names in PROGRAMS_BY_REASON.values() for name in names)
    for path in sorted((folder / "tests").glob("*.rs")):
        if path.stem not in left_out:
            yield from ("--test", path.stem)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.aarch64",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="two of the engine's test programs")
    parser.add_argument("--quick", action="store_true", help="a part of the engine's tests")
    parser.add_argument("--if-possible", action="store_true", help="0 if nothing can be emulated")
    parser.add_argument("--wheel", type=Path, help="a folder with an aarch64 wheel to try, too")
    parser.add_argument("tests", nargs="*", help="names of tests, as cargo test takes them")
    asked = parser.parse_args()
    try:
        need_rust_target()
        emulated = emulator.find()
    except UnavailableError as reason:
        print(f"== aarch64 was NOT tested: {reason}", flush=True)
        return 0 if asked.if_possible else 1
    failed = []
    if asked.check:
        manifest = ("--manifest-path", str(check_manifest()), "--tests")
        failed += [] if test("ringloop", manifest, asked.tests, emulated) else ["ringloop"]
    for package, parts in () if asked.check else (QUICK if asked.quick else whole()).items():
        if not test(package, ("--package", package, *parts), asked.tests, emulated):
            failed.append(package)
    if asked.wheel and not try_wheel(asked.wheel, emulated):
        failed.append("the wheel")
    if failed:
        print(f"aarch64: FAILED: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def need_rust_target() -> None:
    """Have Rust's standard library for aarch64; rustup installs it."""
    place = run(["rustc", "--print", "target-libdir", "--target", TARGET]).strip()
    if not list(Path(place).glob("libstd-*.rlib")):
        run(["rustup", "target", "add", TARGET])


def check_manifest() -> Path:
    """Write the package of `CHECK`, with the versions of this workspace; return its manifest."""
    place = CHECKOUT / os.environ.get("CARGO_TARGET_DIR", "target") / "aarch64-check"
    place.mkdir(parents=True, exist_ok=True)
    crates = CHECKOUT / "crates"
    manifest = CHECK_PACKAGE.format(crates=crates)
    manifest += "".join(CHECK_PROGRAM.format(name=name, crates=crates) for name in CHECK)
    (place / "Cargo.toml").write_text(manifest)
    (place / "lib.rs").touch()
    shutil.copy(CHECKOUT / "Cargo.lock", place)
    return place / "Cargo.toml"


def test(package: str, parts: tuple[str, ...], names: list[str], emulated: Emulator) -> bool:
    """Build a crate's tests and run them; true if all passed."""
    variables = {
        **os.environ,
        **emulated.environment,
        "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
        "RINGLOOP_DRIVER": "epoll",
        "CARGO_TARGET_DIR": str(CHECKOUT / os.environ.get("CARGO_TARGET_DIR", "target")),
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER": " ".join(emulated.prefix),
    }
    # zig is the linker and the C compiler.
    command = ["cargo-zigbuild", "test", "--quiet", "--target", f"{TARGET}.{LIBRARY}"]
    command += parts
    began = time.monotonic()
    print(f"== building the tests of {package} for aarch64", flush=True)
    if subprocess.run([*command, "--no-run"], env=variables, check=False).returncode:
        return False
    built = time.monotonic()
    print(
        f"== built in {built - began:.0f} s; running them emulated, on the readiness driver",
        flush=True,
    )
    skipped = [word for names in BY_REASON.values() for name in names for word in ("--skip", name)]
    for reason, left_out in BY_REASON.items():
        print(f"   left out: {reason}: {', '.join(left_out)}", flush=True)
    command += ["--no-fail-fast", "--", *skipped, *names]
    ran = subprocess.run(command, env=variables, check=False)
    print(f"== ran in {time.monotonic() - built:.0f} s", flush=True)
    return ran.returncode == 0


def try_wheel(folder: Path, emulated: Emulator) -> bool:
    """Unpack the wheel for the emulated CPython, and let that do what tools/wheels/smoke.py does."""
    tag = "cp" + emulator.PYTHON.replace(".", "")
    found = sorted(folder.glob(f"ringloop-*-{tag}-{tag}-*aarch64.whl"))
    if not found:
        print(f"no aarch64 wheel for CPython {emulator.PYTHON} in {folder}", file=sys.stderr)
        return False
    print(f"== {found[-1].name}, emulated", flush=True)
    with tempfile.TemporaryDirectory() as place:
        with zipfile.ZipFile(found[-1]) as archive:
            archive.extractall(place)
        variables = {**os.environ, **emulated.environment, "PYTHONPATH": place}
        return (
            subprocess.run([*emulated.python, str(SMOKE)], env=variables, check=False).returncode
            == 0
        )


if __name__ == "__main__":
    sys.exit(main())
