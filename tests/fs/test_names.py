"""Functions of `os`, `Path`, `scandir` and temporary files give what the standard library gives."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import fs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

# A function, and its arguments in a folder with a file "f", a folder "d" with "d/x", a link "l".
CALLS: list[tuple[str, tuple[str, ...]]] = [
    ("stat", ("f",)), ("stat", ("l",)), ("stat", ("missing",)), ("stat", ("f/x",)),
    ("lstat", ("l",)), ("mkdir", ("new",)), ("mkdir", ("d",)), ("mkdir", ("no/such",)),
    ("makedirs", ("a/b/c",)), ("rmdir", ("d",)), ("rmdir", ("f",)), ("rmdir", ("missing",)),
    ("remove", ("f",)), ("remove", ("d",)), ("unlink", ("missing",)), ("rename", ("f", "g")),
    ("rename", ("missing", "g")), ("rename", ("d", "f")), ("replace", ("f", "d/x")),
    ("link", ("f", "g")), ("link", ("f", "d")), ("link", ("l", "g")), ("symlink", ("f", "g")),
    ("symlink", ("f", "d")), ("readlink", ("l",)), ("readlink", ("f",)), ("listdir", ("d",)),
    ("listdir", ("f",)), ("truncate", ("f",)), ("access", ("f",)), ("removedirs", ("d",)),
]  # fmt: skip
EXTRA: dict[str, tuple[Any, ...]] = {"truncate": (2,), "access": (os.R_OK,)}


def _folder(base: pathlib.Path, name: str) -> pathlib.Path:
    folder = base / name
    (folder / "d").mkdir(parents=True)
    (folder / "d" / "x").write_text("inside")
    (folder / "f").write_text("content")
    (folder / "l").symlink_to("f")
    return folder


def _tree(folder: pathlib.Path) -> list[tuple[str, str]]:
    found = sorted(folder.rglob("*"))
    return [
        (str(path.relative_to(folder)), path.read_text() if path.is_file() else "-")
        for path in found
    ]


def _shown(name: str, result: Any, folder: pathlib.Path) -> Any:
    if name in {"stat", "lstat"}:
        return [result.st_mode, result.st_size, result.st_nlink, result.st_uid, result.st_blksize]
    return str(result).replace(str(folder), "")


def _error(error: OSError, folder: pathlib.Path) -> Any:
    names = [str(name).replace(str(folder), "") for name in (error.filename, error.filename2)]
    return type(error), error.errno, names, str(error).replace(str(folder), "")


@pytest.mark.parametrize(("name", "args"), CALLS)
def test_function_does_what_that_of_os_does(
    name: str, args: tuple[str, ...], run: Run, tmp_path: pathlib.Path
) -> None:
    outcomes: list[Any] = []
    for kind, function in (("os", getattr(os, name)), ("fs", getattr(fs, name))):
        folder = _folder(tmp_path, kind)
        paths = [str(folder / arg) for arg in args]
        try:
            result = function(*paths, *EXTRA.get(name, ()))
            if kind == "fs":
                result = run(result)
            outcomes.append((_shown(name, result, folder), _tree(folder)))
        except OSError as error:
            outcomes.append((_error(error, folder), _tree(folder)))
    assert outcomes[0] == outcomes[1]


def test_stat_gives_every_field(run: Run, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "f"
    path.write_text("x")
    for target in (path, "/dev/null", "/proc/self/status"):
        expected, found = os.stat(target), run(fs.stat(target))
        for field in ("mode", "ino", "dev", "nlink", "uid", "gid", "size", "mtime_ns", "ctime_ns",
                      "blksize", "blocks", "rdev"):  # fmt: skip
            if not (str(target).startswith("/proc") and field.endswith("time_ns")):
                assert getattr(found, f"st_{field}") == getattr(expected, f"st_{field}"), field
        assert found.st_mtime == pytest.approx(found.st_mtime_ns / 1e9)
    with path.open() as file:
        assert run(fs.stat(file.fileno())).st_size == 1
    with pytest.raises(FileNotFoundError):
        run(fs.stat(""))
    with pytest.raises(ValueError, match="null byte"):
        run(fs.stat("a\0b"))


def test_questions_about_files(run: Run, tmp_path: pathlib.Path) -> None:
    folder = _folder(tmp_path, "t")
    (folder / "dangling").symlink_to("nowhere")
    for name in ("f", "d", "l", "dangling", "missing"):
        path = folder / name
        assert run(fs.exists(path)) == os.path.exists(path)
        assert run(fs.lexists(path)) == os.path.lexists(path)
        assert run(fs.isfile(path)) == os.path.isfile(path)
        assert run(fs.isdir(path)) == os.path.isdir(path)
        assert run(fs.islink(path)) == os.path.islink(path)
    assert run(fs.getsize(folder / "f")) == 7


def test_scandir_walk_and_copies(run: Run, tmp_path: pathlib.Path) -> None:
    folder = _folder(tmp_path, "t")
    for number in range(600):
        (folder / "d" / str(number)).touch()

    async def main() -> None:
        names = [entry.name async for entry in fs.scandir(folder / "d")]
        assert sorted(names) == sorted(os.listdir(folder / "d"))
        async with fs.scandir(folder) as entries:
            async for entry in entries:
                assert entry.is_dir() == (entry.name == "d")
        walked = [(root, sorted(files)) async for root, _, files in fs.walk(folder)]
        assert walked == [(root, sorted(files)) for root, _, files in os.walk(folder)]
        await fs.copyfile(folder / "f", folder / "copy")
        assert (folder / "copy").read_text() == "content"
        await fs.rmtree(folder)
        assert not folder.exists()
        with pytest.raises(FileNotFoundError):
            async for _ in fs.scandir(folder):
                pass

    run(main())


def test_path_is_pathlibs_with_coroutines(run: Run, tmp_path: pathlib.Path) -> None:
    folder = fs.Path(_folder(tmp_path, "t"))
    plain = pathlib.Path(folder)

    async def main() -> None:
        path = folder / "d" / "new.txt"
        assert path == plain / "d" / "new.txt"
        assert (path.name, path.stem, path.suffix, path.parent) == (
            "new.txt",
            "new",
            ".txt",
            folder / "d",
        )
        assert isinstance(path.parent, fs.Path)
        assert path.with_suffix(".md") == plain / "d" / "new.md"
        assert await path.write_text("héllo") == 5
        assert await path.read_text() == "héllo"
        assert await path.read_bytes() == "héllo".encode(errors="strict")
        assert (await path.stat()).st_size == 6
        assert await path.exists()
        assert await path.is_file()
        assert not await path.is_dir()
        assert await (folder / "l").is_symlink()
        assert await (folder / "l").resolve() == folder / "f"
        assert {entry.name async for entry in folder.iterdir()} == {"d", "f", "l"}
        assert [found async for found in folder.rglob("*.txt")] == [path]
        renamed = await path.rename(folder / "moved.txt")
        assert renamed == folder / "moved.txt"
        await renamed.unlink()
        await renamed.unlink(missing_ok=True)
        with pytest.raises(FileNotFoundError):
            await renamed.unlink()
        await (folder / "p" / "q").mkdir(parents=True)
        await (folder / "p").mkdir(exist_ok=True)
        with pytest.raises(FileExistsError):
            await (folder / "f").mkdir(exist_ok=True)
        async with (folder / "f").open() as file:
            assert await file.read() == "content"
        await (folder / "t").touch()
        await (folder / "h").hardlink_to(folder / "f")
        assert await (folder / "h").samefile(folder / "f")
        assert await fs.Path.cwd() == pathlib.Path.cwd()

    run(main())


def test_path_has_every_name_of_pathlibs(run: Run, tmp_path: pathlib.Path) -> None:
    # `info` would block the loop; `link_to` is gone since Python 3.12.
    missing = {name for name in dir(pathlib.Path) if not hasattr(fs.Path, name)}
    assert {name for name in missing if not name.startswith("_")} <= {"info", "link_to"}

    async def main() -> None:
        folder = fs.Path(_folder(tmp_path, "t"))
        await (folder / "m").symlink_to("d")
        assert await (folder / "l").is_file()
        assert not await (folder / "l").is_file(follow_symlinks=False)
        assert await (folder / "m").is_dir()
        assert not await (folder / "m").is_dir(follow_symlinks=False)

    run(main())


@pytest.mark.parametrize("mode", ["w+b", "w+"])
def test_temporary_files(mode: str, run: Run) -> None:
    data: Any = b"data\n" if "b" in mode else "data\n"

    async def main() -> None:
        async with fs.TemporaryFile(mode) as file:
            await file.write(data * 3)
            await file.seek(0)
            assert [line async for line in file] == [data] * 3
        async with fs.NamedTemporaryFile(mode, suffix=".x") as file:
            name = file.name
            assert name.endswith(".x")
            await file.write(data)
            await file.flush()
            assert pathlib.Path(name).read_text() == "data\n"
        assert not os.path.exists(name)
        async with fs.NamedTemporaryFile(mode, delete=False) as file:
            name = file.name
        os.unlink(name)
        async with fs.SpooledTemporaryFile(10, mode) as file:
            await file.write(data)
            assert file.name is None
            await file.write(data * 3)
            assert file.name is not None
            await file.seek(0)
            assert await file.readlines() == [data] * 4

    run(main())


def test_temporary_directory(run: Run) -> None:
    async def main() -> None:
        async with fs.TemporaryDirectory(prefix="rl-") as name:
            assert pathlib.Path(name).is_dir()
            assert os.path.dirname(name) == tempfile.gettempdir()
            await fs.write_text(os.path.join(name, "f"), "x")
        assert not os.path.exists(name)
        made = await fs.TemporaryDirectory()
        await made.cleanup()
        assert not os.path.exists(made.name)

    run(main())
