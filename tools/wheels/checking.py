"""What is looked at in a wheel before anyone installs it.

Owns: the reading of wheels. Called by: `__main__`. Raises `BuildError` for what an index or a user
would stumble over, and returns what the table says.
"""

import base64
import csv
import hashlib
import re
import zipfile
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from io import BytesIO
from pathlib import Path

import windows
from building import FENCE, LINK, TARGET, BuildError, Platform, beside, run
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

MB = 1_000_000
# `push %rbp; mov %rsp,%rbp`
PROLOGUE_X86_64 = b"\x55\x48\x89\xe5"
# The share of functions with unwind tables that make a frame; hand-written assembly makes none.
FRAMES_SHARE_MIN = 0.5
# What musl has since 1.2.5 (Alpine 3.20), without versions; musllinux_1_2 begins at 1.2.0.
NEW_IN_MUSL_1_2_5 = {"preadv2", "pwritev2", "statx"}
# How zig names musl's C library. auditwheel knows Alpine's name alone, and calls such a wheel
# linux_x86_64; musl's loader takes every name that begins with "libc." as its own.
MUSL_BY_ZIG = ["libc.so"]


@dataclass
class Report:
    """What a wheel holds."""

    packed: int
    unpacked: int
    # The newest version of the C library that it asks for, and the symbols that do.
    library: str = ""
    symbols: list[str] = field(default_factory=list)
    # The shared libraries that it names.
    libraries: list[str] = field(default_factory=list)
    frames: str = ""

    @property
    def sizes(self) -> str:
        """Both sizes, as the table shows them."""
        return f"{self.packed / MB:.1f} MB, {self.unpacked / MB:.1f} unpacked"


def check_wheel(wheel: Path, platform: Platform, repository: str | None) -> Report:
    """Read the wheel, by auditwheel and twine too."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    check_names(list(files))
    check_record(files)
    check_tag(wheel, files, platform)
    check_metadata(message_from_bytes(only(files, r"\.dist-info/METADATA$")), repository)
    report = Report(wheel.stat().st_size, sum(map(len, files.values())))
    extension = only(files, r"_native[^/]*\.(so|pyd)$")
    check_paths(extension)
    if platform.is_elf:
        check_extension(extension, report)
        check_by_auditwheel(wheel, platform, report)
    elif platform.name == "windows":
        windows.check_extension(extension, report)
    run([beside("twine"), "check", "--strict", wheel])
    return report


def only(files: dict[str, bytes], name: str) -> bytes:
    """Return the one file whose name the pattern finds."""
    found = [data for each, data in files.items() if re.search(name, each)]
    if len(found) != 1:
        raise BuildError(f"{len(found)} files in the wheel with a name like {name}")
    return found[0]


def check_record(files: dict[str, bytes]) -> None:
    """See that RECORD has the hash and length of each file, and no others."""
    rows = list(csv.reader(only(files, r"\.dist-info/RECORD$").decode().splitlines()))
    if different := {name for name, *_ in rows} ^ files.keys():
        raise BuildError(f"RECORD and the wheel differ: {', '.join(sorted(different))}")
    for name, told, length in rows:
        if name.endswith("/RECORD"):
            continue
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest())
        if (told, int(length)) != (f"sha256={digest.decode().rstrip('=')}", len(files[name])):
            raise BuildError(f"RECORD has another hash or length of {name}")


def check_tag(wheel: Path, files: dict[str, bytes], platform: Platform) -> None:
    """See that the wheel says inside what its name says, and that it is for this platform."""
    tag = "-".join(wheel.stem.split("-")[2:])
    told = message_from_bytes(only(files, r"\.dist-info/WHEEL$")).get_all("Tag", [])
    if told != [tag] or not tag.endswith(platform.tag):
        raise BuildError(f"{wheel.name} says {told} inside, and is to be for {platform.tag}")


def check_by_auditwheel(wheel: Path, platform: Platform, report: Report) -> None:
    """See that it is for the platform according to auditwheel, too."""
    shown = run([beside("auditwheel"), "show", wheel])
    is_by_zig = platform.library.startswith("musllinux") and report.libraries == MUSL_BY_ZIG
    if f'"{platform.tag}"' not in " ".join(shown.split()) and not is_by_zig:
        raise BuildError(f"auditwheel does not find it to be {platform.tag}:\n{shown}")


def check_names(names: list[str]) -> None:
    """See that nothing is missing that no import would miss."""
    wanted = ("ringloop/py.typed", "ringloop/_native/__init__.pyi", "ringloop_install.pth")
    wanted += ("LICENSE-MIT", "LICENSE-APACHE")
    if missing := [one for one in wanted if not any(name.endswith(one) for name in names)]:
        raise BuildError(f"not in the wheel: {', '.join(missing)}")


def check_metadata(metadata: Message, repository: str | None) -> None:
    """See that an index can show the page: no relative link, and the project's addresses."""
    if repository is None:
        return
    page = FENCE.sub("", str(metadata.get_payload()))
    if relative := [found[2] for found in LINK.finditer(page)]:
        raise BuildError(
            f"links of the README that lead nowhere on an index: {', '.join(relative)}"
        )
    if not any(repository in url for url in metadata.get_all("Project-URL", [])):
        raise BuildError("no project URLs")


def check_paths(extension: bytes) -> None:
    """Look for paths of this machine."""
    for path in (str(Path.home()) + "/", str(TARGET)):
        if (at := extension.find(path.encode())) >= 0:
            found = extension[at : at + 100].split(b"\0")[0].decode(errors="replace")
            raise BuildError(f"a path of this machine is in the extension: {found}")


def check_extension(extension: bytes, report: Report) -> None:
    """Look for debug information, frame pointers and the C library's symbols."""
    elf = ELFFile(BytesIO(extension))
    sections = {section.name: section for section in elf.iter_sections()}
    if left := [
        name for name in sections if name.startswith((".debug", ".zdebug")) or name == ".symtab"
    ]:
        raise BuildError(f"the extension is not stripped: {', '.join(left)}")
    if elf.get_machine_arch() == "x64":
        check_frames(elf, report)
    report.libraries = [
        tag.needed
        for tag in elf.get_section_by_name(".dynamic").iter_tags()
        if tag.entry.d_tag == "DT_NEEDED"
    ]
    symbols = elf.get_section_by_name(".dynsym")
    asked = {symbol.name for symbol in symbols.iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"}
    if needed := symbol_versions(elf):
        newest = max(needed, key=lambda name: [int(part) for part in name.split("_")[1].split(".")])
        report.library, report.symbols = newest, needed[newest]
    elif new := sorted(asked & NEW_IN_MUSL_1_2_5):
        report.library, report.symbols = "musl 1.2.5", new


def check_frames(elf: ELFFile, report: Report) -> None:
    """See that functions keep the frame pointer, by how they begin."""
    entries = elf.get_dwarf_info().EH_CFI_entries()
    functions = sum(isinstance(entry, FDE) for entry in entries)
    frames = elf.get_section_by_name(".text").data().count(PROLOGUE_X86_64)
    report.frames = f"{frames} of {functions} functions"
    if frames < functions * FRAMES_SHARE_MIN:
        raise BuildError(f"built without frame pointers: only {report.frames} have them")


def symbol_versions(elf: ELFFile) -> dict[str, list[str]]:
    """Return the symbols that each version of the C library is asked for.

    A symbol without a version is one that the linker found in no library: only Python's may be so.
    """
    versions = {}
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _library, entries in section.iter_versions():
                versions |= {entry["vna_other"]: entry.name for entry in entries}
    table = elf.get_section_by_name(".gnu.version")
    if not versions or table is None:
        return {}
    needed: dict[str, list[str]] = {}
    for number, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
        if (
            symbol["st_shndx"] == "SHN_UNDEF"
            and symbol["st_info"]["bind"] != "STB_WEAK"
            and symbol.name
        ):
            version = versions.get(table.get_symbol(number)["ndx"], "")
            needed.setdefault(version, []).append(symbol.name)
    if unknown := [name for name in needed.pop("", []) if not name.startswith(("Py", "_Py"))]:
        raise BuildError(f"symbols that no C library of this age has: {', '.join(unknown)}")
    return {version: names for version, names in needed.items() if version.startswith("GLIBC_")}
