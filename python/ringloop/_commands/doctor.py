"""`python -m ringloop doctor`: what this machine offers a loop, and how to fix what is missing."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json

import ringloop
from ringloop import _output
from ringloop._commands import PROGRAM
from ringloop._diagnosis import Finding, diagnose
from ringloop._driver import NAMES

_EPILOG = """\
Exit status: 0 if ringloop's loop runs; 1 if something keeps it from running, or from using the driver
that --driver or RINGLOOP_DRIVER names (a line marked "problem"); 2 for a usage error.
"""


def main(arguments: list[str]) -> int:
    """Print the findings; return the exit status."""
    parser = _output.Parser(
        prog=f"{PROGRAM} doctor",
        description="Report which driver loops use here and why, what the kernel, the container and the"
        " limits allow, and what to change.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--driver",
        choices=NAMES,
        help="the driver to check for (default: RINGLOOP_DRIVER, or auto)",
    )
    asked = parser.parse_args(arguments)
    findings = diagnose(asked.driver)
    is_well = all(finding.status != "problem" for finding in findings)
    if asked.json:
        report = {
            "ringloop": ringloop.__version__,
            "is_well": is_well,
            "findings": [dataclasses.asdict(finding) for finding in findings],
        }
        _output.say(json.dumps(report, indent=2) + "\n")
    else:
        _output.say(_as_text(findings))
    return 0 if is_well else 1


def _as_text(findings: list[Finding]) -> str:
    width = max(len(finding.name) for finding in findings)
    lines = []
    for group, members in itertools.groupby(findings, lambda finding: finding.group):
        lines.append(group)
        for finding in members:
            mark = "" if finding.status == "ok" else finding.status
            lines.append(f"  {mark:8}{finding.name:{width}}  {finding.value}")
            if finding.remedy:
                lines.append(f"  {'':8}{'':{width}}  -> {finding.remedy}")
    problems = sum(finding.status == "problem" for finding in findings)
    notes = sum(finding.status == "note" for finding in findings)
    lines.append(f"{problems} problems, {notes} notes")
    return "\n".join(lines) + "\n"
