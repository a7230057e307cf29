"""The rooms of hposvc: which part may import which, and the picture of that in docs/rooms.svg.

`python docs/rooms.py` draws the picture from the imports in the source. tests/test_imports.py
enforces the rules below, and tests/test_architecture.py holds the picture against the source.

In the picture every room has a row and, below its box, a column. A dot where the row of one room
meets the column of another is an import of the second room by the first.
"""

import ast
from collections.abc import Collection
from functools import cache
from itertools import accumulate
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parent.parent
PICTURE = Path(__file__).with_name("rooms.svg")
PACKAGES = ("hposvc", "searchers", "trainables", "cluster")
# From the outside in, each room with its content: a room may import those of later layers, never
# one of an earlier layer or of its own. A new folder or module of hposvc needs a line here.
LAYERS: tuple[dict[str, str], ...] = (
    {"integrations": "in other libraries' words: sklearn, optuna, hydra, hf, xgboost, ..."},
    {"__main__": "python -m hposvc"},
    {"python": "the same verbs in Python: Sweep, load, connect", "cli": "the command line"},
    {
        "server": "the same verbs over HTTP, for a team",
        "mcp": "the same verbs as tools, for agents",
    },
    {"verbs": "a file each: command, table, and the function if no room below has it"},
    {"views": "what people see: the console, the live table, watch"},
    {"remote": "clients: of a server, of a cluster, and the agents that take trials"},
    {"reporting": "charts, and the report that holds them"},
    {
        "drafts": "a first spec for one's own code",
        "analysis": "audit, reproduction, costs",
    },
    {"api": "create, drive and read sweeps"},
    {"driver": "a session that runs a sweep: joins the three rooms below"},
    {
        "open_sweep": "a recorded sweep to be read, here or on a server",
        "controller": "decides: events in, orders out; no I/O, no clock",
        "backends": "carry out orders: ray, tune, local, agents",
        "tracking": "copies the journal to MLflow and other sinks",
    },
    {
        "state": "what the journal's events say about a sweep and its trials",
        "queue": "who gets how many slots, between sweeps: pure policies",
    },
    {"spec": "the frozen description of a sweep; the registry of plug-ins"},
    {
        "schedulers": "which trial goes on, and how far",
        "journal": "database, events, requests, leases: what is durable",
        "estimate": "a number with its interval",
    },
    {
        "events": "what can happen in a sweep; the journal's version",
        "errors": "what can be wrong, said to users",
        "text": "numbers and durations for people, data as JSON",
        "operation": "what a server carries out for its callers, from one function",
    },
    {
        "searchers": "which configuration is tried next",
        "trainables": "train one configuration on several ranks",
        "cluster": "connect to a Ray cluster, or start one",
    },
)
# Rooms that stay apart, though one lies below the other: what decides knows nothing of the journal,
# what carries out nothing of a sweep's state, and a fold only events.
APART = {
    "schedulers": {"events"},
    "spec": {"journal"},
    "state": {"journal"},
    "queue": {"journal"},
    "controller": {"journal"},
    "backends": {"state"},
}
SHOWS = "hposvc/backends/ray/prometheus.py"  # an observer of the state, behind Ray's door

ROOMS = tuple(room for layer in LAYERS for room in layer)

# In pixels; the middle of the first room's column and row, and what lies between two of them.
LEFT, TOP, PITCH = 282, 22, 24
BOX_WIDTH, BOX_HEIGHT = 84, 18
WIDTH = LEFT + PITCH * len(ROOMS)  # to beyond the last room's box
DARK, GREY, LIGHT, BAND = "#1f2733", "#5b6270", "#bcc7d3", "#f0f4f8"
BLUE, RED = "#2f7fb5", "#d1402f"
LEGEND = (
    "From a box go right to a dot, then down to the box that it imports. Every arrow goes down: "
    "there are no cycles.",
    "Cross: never, though it lies below. Ring: one module only. No mark: not used; between boxes "
    "of one band it is forbidden.",
)


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    """Return every module of ours: its path from the root, and its syntax tree."""
    return tuple(
        (path.relative_to(ROOT), ast.parse(path.read_text()))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    )


@cache
def imported(tree: ast.AST) -> list[tuple[str, ast.stmt]]:
    """Return the dotted name of every import in a syntax tree, with its statement."""
    found: list[tuple[str, ast.stmt]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            found += [(f"{node.module}.{alias.name}", node) for alias in node.names]
    return found


def room(name: str) -> str:
    """Return the room of a dotted name: a part of hposvc, or another package; empty: none."""
    package, _, rest = name.partition(".")
    if package == "hposvc":
        part = rest.partition(".")[0]
        return part if part in ROOMS else ""
    return package if package in PACKAGES else ""


def room_of(path: Path) -> str:
    """Return the room of a module; empty for those that only name public parts of others.

    They are hposvc/__init__.py and, for users of other libraries, hposvc/sklearn.py and its like.
    """
    return room(".".join(path.with_suffix("").parts))


def room_imports() -> set[tuple[str, str]]:
    """Return the pairs (importing room, imported room) in the source."""
    pairs = {(room_of(path), room(name)) for path, tree in modules() for name, _ in imported(tree)}
    return {(here, there) for here, there in pairs if here and there and here != there}


def draw() -> str:
    """Return the picture, an SVG document."""
    imports = room_imports()
    height = _y(len(ROOMS)) + 30
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" font-family="Helvetica, Arial, sans-serif" '
        f'font-size="11.5" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *_bands(),
        *_arrows(imports),
        *_boxes(),
        *(_dot(here, there) for here, there in sorted(imports)),
        *(
            _cross(here, there)
            for here, others in APART.items()
            for there in sorted(others)
            if (here, there) not in imports
        ),
        *(_text(14, height - 24 + 17 * row, line, GREY) for row, line in enumerate(LEGEND)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _x(number: int) -> float:
    """Return the middle of a room's column."""
    return LEFT + PITCH * number


def _y(number: int) -> float:
    """Return the middle of a room's row."""
    return TOP + PITCH * number


def _bands() -> list[str]:
    """Return a band behind the rows of every second layer."""
    ends = list(accumulate(len(layer) for layer in LAYERS))
    return [
        f'<rect x="0" y="{_y(end - len(layer)) - PITCH / 2:g}" width="{WIDTH}" '
        f'height="{PITCH * len(layer)}" fill="{BAND}"/>'
        for number, (layer, end) in enumerate(zip(LAYERS, ends, strict=True))
        if number % 2 == 0
    ]


def _arrows(pairs: Collection[tuple[str, str]]) -> list[str]:
    """Return a line from each box to its last dot, and an arrow from each first dot to its box."""
    lines = []
    for number, name in enumerate(ROOMS):
        ends = [ROOMS.index(there) for here, there in pairs if here == name]
        starts = [ROOMS.index(here) for here, there in pairs if there == name]
        if ends:
            lines.append(f'<path d="M{_x(number)} {_y(number)}H{_x(max(ends))}" stroke="{LIGHT}"/>')
        if starts:
            x, top = _x(number), _y(number) - BOX_HEIGHT / 2
            lines.append(f'<path d="M{x} {_y(min(starts))}V{top:g}" stroke="{LIGHT}"/>')
            lines.append(f'<path d="M{x - 3.5} {top - 5:g}h7l-3.5 5z" fill="{GREY}"/>')
    return lines


def _boxes() -> list[str]:
    """Return the box of every room, and the room's content before it."""
    lines = []
    contents = [content for layer in LAYERS for content in layer.values()]
    for number, (name, content) in enumerate(zip(ROOMS, contents, strict=True)):
        x, y = _x(number) + PITCH / 2 - BOX_WIDTH, _y(number)
        lines += [
            f'<rect class="room" data-room="{name}" x="{x:g}" y="{y - BOX_HEIGHT / 2:g}" '
            f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="white" stroke="{DARK}"/>',
            _text(x + BOX_WIDTH / 2, y + 4, name, DARK, 'text-anchor="middle" font-weight="bold"'),
            _text(x - 7, y + 4, content, GREY, 'text-anchor="end"'),
        ]
    return lines


def _dot(here: str, there: str) -> str:
    """Return the dot of an import; a ring if the two rooms stay apart but for one module."""
    x, y = _x(ROOMS.index(there)), _y(ROOMS.index(here))
    fill = "white" if there in APART.get(here, ()) else BLUE
    return (
        f'<circle class="import" data-from="{here}" data-to="{there}" cx="{x}" cy="{y}" r="4" '
        f'fill="{fill}" stroke="{BLUE}"><title>{here} imports {there}</title></circle>'
    )


def _cross(here: str, there: str) -> str:
    """Return the cross of an import that is forbidden, though it would point down."""
    x, y = _x(ROOMS.index(there)), _y(ROOMS.index(here))
    return (
        f'<path class="apart" data-from="{here}" data-to="{there}" stroke="{RED}" '
        f'stroke-width="1.6" d="M{x - 3.5} {y - 3.5}l7 7m0 -7l-7 7">'
        f"<title>{here} never imports {there}</title></path>"
    )


def _text(x: float, y: float, text: str, colour: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" {style}>{escape(text)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw())
