"""A flame graph as one self-contained SVG file for a browser.

The outermost row is first: the phase of the loop, the task, the functions. The time the loop waited
in the kernel is stated above the graph and not drawn: for most services it is the larger part. The
graph is complete without its script, which adds zooming and search.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ringloop.profiling._profile import IDLE, Function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringloop.profiling._profile import Profile, Share

ROW = 18
MARGIN = 8
LISTED = 6
# Narrower boxes are left out: a thousandth of a wide window is two pixels.
SHARE_MIN = 0.001
BOXES_MAX = 20_000

STYLE = """
svg { font: 12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; }
#page { background: #fff; }
h1 { font-size: 16px; margin: 0 0 2px; } p { margin: 0 0 6px; color: #444; }
.lists { display: flex; gap: 32px; align-items: flex-start; }
table { border-collapse: collapse; } caption { text-align: left; font-weight: 600; }
td { padding: 0 10px 1px 0; white-space: nowrap; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.box { cursor: pointer; } .box:hover rect { stroke: #000; } .box rect { stroke: #fff; stroke-width: .6; }
.box text { font-size: 11.5px; pointer-events: none; }
.faded { opacity: .45; } .hidden { display: none; }
.found rect { fill: #c7f !important; }
input { font: inherit; width: 16em; } button { font: inherit; }
"""

SCRIPT = """
const boxes = [...document.querySelectorAll('.box')].map(node => ({
  node, x: +node.dataset.x, width: +node.dataset.w, row: +node.dataset.r,
  name: node.querySelector('title').textContent.split('\\n')[0] }));
const near = 1e-9;
function zoom(to) {
  for (const box of boxes) {
    const before = box.x - to.x, after = box.x + box.width - to.x - to.width;
    const above = box.row < to.row && before <= near && after >= -near;
    const inside = box.row >= to.row && before >= -near && after <= near;
    box.node.classList.toggle('hidden', !above && !inside);
    box.node.classList.toggle('faded', above);
    const x = above ? 0 : (box.x - to.x) / to.width, width = above ? 1 : box.width / to.width;
    box.node.setAttribute('x', 100 * x + '%');
    box.node.setAttribute('width', 100 * width + '%');
  }
}
const all = { x: 0, width: 1, row: 0 };
function search(text) {
  let pattern = null;
  try { pattern = text ? new RegExp(text, 'i') : null; } catch (error) { pattern = null; }
  let end = 0, share = 0;
  const found = boxes.filter(box => pattern !== null && pattern.test(box.name));
  boxes.forEach(box => box.node.classList.remove('found'));
  found.forEach(box => box.node.classList.add('found'));
  found.sort((a, b) => a.x - b.x || b.width - a.width);
  for (const box of found) if (box.x + near >= end) { share += box.width; end = box.x + box.width; }
  document.getElementById('share').textContent = text ? (100 * share).toFixed(1) + ' % found' : '';
}
boxes.forEach(box => box.node.addEventListener('click', () => zoom(box)));
document.getElementById('search').addEventListener('input', event => search(event.target.value));
document.getElementById('reset').addEventListener('click', () => zoom(all));
addEventListener('keydown', event => { if (event.key === 'Escape') zoom(all); });
"""


@dataclass
class Node:
    """A box: one function, below its callers."""

    function: Function
    seconds: float = 0.0
    own: float = 0.0
    callees: dict[Function, Node] = field(default_factory=dict)


@dataclass
class Box:
    """A node with its position, as fractions of the graph's width."""

    node: Node
    x: float
    width: float
    row: int


def render(profile: Profile) -> bytes:
    """Return the file's bytes."""
    root = tree(profile)
    boxes = list(placed(root))
    rows = 1 + max((box.row for box in boxes), default=0)
    head = 84 + (LISTED + 1) * ROW
    height = head + rows * ROW + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" id="page" width="100%" height="{height}">',
        f"<title>{escape(_title(profile))}</title><style>{STYLE}</style>",
        f'<rect width="100%" height="{height}" fill="#fff"/>',
        f'<foreignObject x="{MARGIN}" y="{MARGIN}" width="100%" height="{head - MARGIN}">',
        f'<div xmlns="http://www.w3.org/1999/xhtml">{_head(profile, root)}</div></foreignObject>',
        f'<svg y="{head}" width="100%" height="{rows * ROW}" font-size="11.5">',
        *(_box(box, root.seconds) for box in boxes),
        f"</svg><script><![CDATA[{SCRIPT}]]></script></svg>\n",
    ]
    return "\n".join(parts).encode()


def tree(profile: Profile) -> Node:
    """Merge the stacks by their outer functions, without the time the loops slept."""
    root = Node(Function("all"))
    for stack, seconds in profile.stacks.items():
        if stack[0].name == IDLE:
            continue
        node = root
        node.seconds += seconds
        for function in stack:
            node = node.callees.setdefault(function, Node(function))
            node.seconds += seconds
        node.own += seconds
    return root


def placed(root: Node) -> Iterator[Box]:
    """Position every node that is wide enough, the widest first."""
    if root.seconds <= 0:
        return
    # By rows: a graph that is too large loses its innermost part.
    boxes = _inside(Box(root, 0.0, 1.0, -1), root.seconds)
    count = 0
    while boxes and count < BOXES_MAX:
        count += len(boxes)
        yield from boxes
        boxes = [inner for box in boxes for inner in _inside(box, root.seconds)]


def _inside(outer: Box, seconds: float) -> list[Box]:
    """Return the boxes of a node's callees."""
    found = []
    x = outer.x
    for callee in _ordered(outer.node):
        width = callee.seconds / seconds
        if width >= SHARE_MIN:
            found.append(Box(callee, x, width, outer.row + 1))
        x += width
    return found


def _ordered(node: Node) -> list[Node]:
    return sorted(node.callees.values(), key=lambda callee: (-callee.seconds, callee.function))


def _title(profile: Profile) -> str:
    what = (
        "what the loops' threads did" if profile.mode == "running" else "what the tasks waited for"
    )
    return f"ringloop profile: {what}"


def _head(profile: Profile, root: Node) -> str:
    unit = "loop-seconds" if profile.mode == "running" else "task-seconds"
    sums = ", ".join(
        f"{name} {seconds:.2f} s"
        for name, seconds in sorted(profile.phases.items(), key=_by_seconds)
    )
    asleep = profile.phases.get(IDLE, 0.0)
    facts = (
        f"{profile.samples:,} samples in {profile.seconds:.1f} s, {profile.rate:g} per second. "
        f"{sums or 'no loop ran'}. The graph is {root.seconds:.2f} {unit}"
        + (f"; {asleep:.2f} s asleep in the kernel are not shown." if asleep else ".")
    )
    shares = profile.shares()
    own = [share for share in shares if share.function.is_own and share.total > 0]
    inner = sorted(shares, key=lambda share: -share.own)
    return (
        f"<h1>{escape(_title(profile))}</h1><p>{escape(facts)} "
        '<input id="search" placeholder="search (regular expression)"/> '
        '<button id="reset">whole graph (Esc)</button> <span id="share"></span></p>'
        '<div class="lists">'
        + _list("Your functions, with their callees", own, root.seconds, total=True)
        + _list("Own lines only, all functions", inner, root.seconds, total=False)
        + "</div>"
    )


def _by_seconds(phase: tuple[str, float]) -> float:
    return -phase[1]


def _list(caption: str, shares: list[Share], seconds: float, *, total: bool) -> str:
    rows = []
    for share in shares[:LISTED]:
        part = share.total if total else share.own
        if part > 0 and seconds > 0:
            rows.append(
                f'<tr><td class="n">{100 * part / seconds:.1f} %</td>'
                f"<td>{escape(str(share.function))}</td></tr>"
            )
    return f"<table><caption>{caption}</caption>{''.join(rows)}</table>"


def _box(box: Box, seconds: float) -> str:
    function, node = box.node.function, box.node
    where = f"\n{function.file}:{function.line}" if function.is_code else ""
    tip = (
        f"{function}\n{100 * box.width:.2f} %, {node.seconds:.3f} s of {seconds:.3f} s; "
        f"own lines {node.own:.3f} s{where}"
    )
    return (
        f'<svg class="box" x="{100 * box.x:.4f}%" width="{100 * box.width:.4f}%" '
        f'y="{box.row * ROW}" height="{ROW}" '
        f'data-x="{box.x:.8f}" data-w="{box.width:.8f}" data-r="{box.row}">'
        f"<title>{escape(tip)}</title>"
        f'<rect width="100%" height="{ROW - 1}" fill="{_colour(function)}"/>'
        f'<text x="4" y="13">{escape(str(function))}</text></svg>'
    )


def _colour(function: Function) -> str:
    """Return a colour by kind, in shades by name: the application warm, libraries blue, phases grey."""
    shade = zlib.crc32(str(function).encode()) % 24
    if not function.is_code:
        return f"hsl(0 0% {80 + shade // 4}%)"
    if function.is_own:
        return f"hsl({24 + shade} 95% {62 + shade // 4}%)"
    if Path(function.file).parts[-3:-1] and "site-packages" in Path(function.file).parts:
        return f"hsl({200 + shade} 60% {76 + shade // 4}%)"
    return f"hsl({150 + shade} 30% {78 + shade // 4}%)"
