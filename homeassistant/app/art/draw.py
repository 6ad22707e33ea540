# ruff: noqa: INP001  # a program, no package
"""Draws `icon.png` (128x128) and `logo.png` (250x100): a house with a cluster in it.

Shapes are signed distances in pixels, so that edges are smooth at any size. Standard library only;
the same bytes each time, which a test compares.
"""

from __future__ import annotations

import itertools
import math
import struct
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Distance = Callable[[float, float], float]
    Point = tuple[float, float]

BLUE: Final = (3, 105, 161)
WHITE: Final = (255, 255, 255)
AMBER: Final = (251, 191, 36)
SLATE: Final = (71, 85, 105)
Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Shape:
    """A colour wherever the distance is negative."""

    colour: Colour
    distance: Distance


def disc(x: float, y: float, radius: float) -> Distance:
    """A filled circle."""
    return lambda px, py: math.hypot(px - x, py - y) - radius


def rounded(x: float, y: float, half: float, radius: float) -> Distance:
    """A square around a point, `half` to each side, with round corners."""

    def distance(px: float, py: float) -> float:
        dx, dy = abs(px - x) - half + radius, abs(py - y) - half + radius
        return math.hypot(max(dx, 0), max(dy, 0)) + min(max(dx, dy), 0) - radius

    return distance


def line(points: Sequence[Point], width: float) -> Distance:
    """A stroke along the points, with round ends."""
    pieces = [(a, b) for a, b in itertools.pairwise(points) if a != b]

    def distance(px: float, py: float) -> float:
        return min(_to_piece(px, py, a, b) for a, b in pieces) - width / 2

    return distance


def _to_piece(px: float, py: float, a: Point, b: Point) -> float:
    dx, dy = b[0] - a[0], b[1] - a[1]
    share = ((px - a[0]) * dx + (py - a[1]) * dy) / (dx * dx + dy * dy)
    share = min(max(share, 0.0), 1.0)
    return math.hypot(px - a[0] - share * dx, py - a[1] - share * dy)


def arc(x: float, y: float, radius: float, degrees: tuple[int, int]) -> list[Point]:
    """Points along a circle, clockwise from three o'clock."""
    first, last = degrees
    steps = 16
    angles = (math.radians(first + (last - first) * n / steps) for n in range(steps + 1))
    return [(x + radius * math.cos(a), y + radius * math.sin(a)) for a in angles]


def house(x: float, y: float, size: float) -> list[Shape]:
    """The icon with its middle at a point, in a square of `size`."""

    def at(px: float, py: float) -> Point:
        return x + (px - 64) * size / 128, y + (py - 64) * size / 128

    unit = size / 128
    walls = [at(26, 60), at(64, 26), at(102, 60), at(102, 102), at(26, 102), at(26, 60)]
    hub, nodes = at(64, 76), (at(44, 88), at(84, 88), at(64, 54))
    return [
        Shape(BLUE, rounded(x, y, size / 2, 26 * unit)),
        Shape(WHITE, line(walls, 7 * unit)),
        *(Shape(WHITE, line([hub, node], 4 * unit)) for node in nodes),
        *(Shape(WHITE, disc(*node, 7 * unit)) for node in nodes),
        Shape(AMBER, disc(*hub, 10 * unit)),
    ]


def word(text: str, x: float, y: float, height: float) -> list[Shape]:
    """Letters from x on, with their feet on y; `height` is that of an x."""
    shapes = []
    for letter in text:
        strokes, width = LETTERS[letter]
        for stroke in strokes:
            points = [(x + px * height, y + (py - 1) * height) for px, py in stroke]
            shapes.append(Shape(SLATE, line(points, height * 0.2)))
        x += (width + 0.34) * height
    return shapes


_S: Final = [*arc(0.31, 0.25, 0.25, (-30, -180)), *arc(0.31, 0.75, 0.25, (-90, 150))]
LETTERS: Final[dict[str, tuple[list[list[Point]], float]]] = {
    "c": ([arc(0.5, 0.5, 0.5, (-45, -315))], 0.86),
    "l": ([[(0, -0.5), (0, 1)]], 0),
    "u": ([[(0, 0), (0, 0.62), *arc(0.38, 0.62, 0.38, (180, 0))], [(0.76, 0), (0.76, 1)]], 0.76),
    "s": ([_S], 0.6),
    "t": (
        [[(0.25, -0.4), (0.25, 0.75), *arc(0.5, 0.75, 0.25, (180, 90))], [(0, 0), (0.5, 0)]],
        0.5,
    ),
    "e": ([[(0.02, 0.5), (1, 0.5), *arc(0.5, 0.5, 0.5, (0, -315))]], 1),
    "r": ([[(0, 0), (0, 1)], arc(0.38, 0.38, 0.38, (180, 285))], 0.48),
    "m": (
        [
            [(0, 0), (0, 1)],
            [*arc(0.3, 0.3, 0.3, (180, 360)), (0.6, 1)],
            [*arc(0.9, 0.3, 0.3, (180, 360)), (1.2, 1)],
        ],
        1.2,
    ),
}
"""Strokes in a square with the x-height as its side, and how wide each letter is."""


def png(width: int, height: int, shapes: Sequence[Shape]) -> bytes:
    """The picture, later shapes over earlier ones, on nothing."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            rows += _pixel(x + 0.5, y + 0.5, shapes)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _pixel(x: float, y: float, shapes: Sequence[Shape]) -> bytes:
    red = green = blue = alpha = 0.0
    for shape in shapes:
        share = min(max(0.5 - shape.distance(x, y), 0.0), 1.0)
        if share:
            alpha, kept = share + alpha * (1 - share), alpha * (1 - share)
            mixed = zip((red, green, blue), shape.colour, strict=True)
            red, green, blue = ((old * kept + new * share) / alpha for old, new in mixed)
    return bytes(round(value) for value in (red, green, blue, alpha * 255))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pixels(content: bytes) -> bytes:
    """What a picture of ours shows; zlib's releases pack the same differently."""
    length = int.from_bytes(content[33:37])
    return zlib.decompress(content[41 : 41 + length])


def pictures() -> dict[str, bytes]:
    """File name -> content."""
    logo = [*house(45, 50, 76), *word("cluster", 96, 58, 16), *word("llm", 203, 58, 16)]
    return {"icon.png": png(128, 128, house(64, 64, 128)), "logo.png": png(250, 100, logo)}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent.parent
    for name, content in pictures().items():
        (folder / name).write_bytes(content)
