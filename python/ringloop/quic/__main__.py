"""`python -m ringloop.quic versions`, and `… certificate localhost`."""

from __future__ import annotations

import sys

from ringloop import _output
from ringloop.quic import versions
from ringloop.quic._certificate import DAYS_MAX, CertificateFiles, make_certificate

_PROGRAM = "python -m ringloop.quic"
# As the shell reports a command that SIGINT has ended.
_INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    """Run a command; return the exit status."""
    try:
        return _output.ended(lambda: _run(arguments), _PROGRAM)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(arguments: list[str]) -> int:
    parser = _parser()
    try:
        asked = parser.parse_args(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    if asked.command == "versions":
        for name, value in versions.report():
            _output.say(f"{name + ':':16} {value}\n")
        return 0
    try:
        files = make_certificate(
            *asked.names, directory=asked.directory, days=asked.days, overwrite=asked.overwrite
        )
    except (OSError, ValueError) as error:
        _output.tell(f"{parser.prog} certificate: {error}\n")
        return 1
    _output.say(_told(files, asked.days))
    return 0


def _parser() -> _output.Parser:
    parser = _output.Parser(prog=_PROGRAM)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("versions", help="print the details for a bug report")
    certificate = commands.add_parser(
        "certificate", help="make a certificate, and an authority that signs it"
    )
    certificate.add_argument("names", nargs="+", metavar="NAME", help="a DNS name or an address")
    certificate.add_argument(
        "--directory",
        default=".",
        help="the directory of the files; created if missing (%(default)s)",
    )
    certificate.add_argument(
        "--days",
        type=int,
        default=365,
        help=f"days of validity: 1 to {DAYS_MAX} (%(default)s)",
    )
    certificate.add_argument(
        "--overwrite", action="store_true", help="replace an existing certificate"
    )
    return parser


def _told(files: CertificateFiles, days: int) -> str:
    """Describe the files, and how to use them."""
    state = "new" if files.is_new_authority else "kept"
    certificate, key, authority = (
        str(path) for path in (files.certificate, files.private_key, files.ca_file)
    )
    host = files.names[0].replace("*", "www")
    return f"""\
{certificate}: for {", ".join(files.names)}; valid for {days} days
{key}: its key; only the server needs it
{authority}: the authority, for clients to trust ({state})
{files.ca_key}: its key, which signs further certificates here; keep it secret

server = await quic.serve(handler, certificate={certificate!r}, private_key={key!r}, alpn=["..."])
async with quic.connect({host!r}, port, ca_file={authority!r}, alpn=["..."]) as connection: ...
"""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
