"""A plan as a picture (SVG): steps as boxes from left to right, with their tasks, and what goes
between them. The colour of a box says the level at which it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.sax import saxutils

_CHAR, _LINE, _PAD, _GAP, _ROW = 6.6, 16.0, 10.0, 90.0, 26.0  # of text of 11 px
_MARGIN, _DOT = 24.0, 5.0
_LONGEST, _DOTS = 34, 8  # characters of a line, and tasks that are drawn one by one
_LOOP = "loop:"
_COLOURS = ("#e8f1fb", "#fdf1dc", "#e6f5e6", "#f7e6f5", "#eeeeee")


_Lanes = list[tuple[float, float, float]]  # from, to, and at which height


@dataclass
class _Box:
    name: str
    lines: list[str]
    tasks: int
    level: int
    inputs: list[tuple[str, str]]  # the step, and how its rows are dealt out
    layer: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        dots = 2 * _PAD + min(self.tasks, _DOTS) * 3 * _DOT + (24 if self.tasks > _DOTS else 0)
        return max(dots, max(map(len, self.lines)) * _CHAR + 2 * _PAD)

    @property
    def height(self) -> float:
        within = len(self.lines) * _LINE + 2 * _PAD + (3 * _DOT if self.tasks else 0)
        return max(within, (len(self.inputs) + 1) * _LINE)

    def port(self, number: int) -> float:
        """How far down the arrow of an input ends, of those that come from above first."""
        return self.y + self.height * (number + 1) / (len(self.inputs) + 1)


def svg_of(data: Mapping[str, Any]) -> str:
    """The picture of an explanation's plain values."""
    boxes, back = _boxes(data)
    lanes, below = _place(boxes, {name for *ends, _ in back for name in ends})
    legend, wide = _legend(data, below + (40 if back else 0) + _MARGIN)
    width = max([wide, *(b.x + b.width for b in boxes.values())]) + _MARGIN
    parts = [
        *(
            _arrow(boxes[f], b, how, port, lanes.get((f, b.name), []))
            for b in boxes.values()
            for port, (f, how) in enumerate(sorted(b.inputs, key=lambda i: boxes[i[0]].y))
        ),
        *(
            _arrow_back(boxes[a], boxes[b], how, below, sum(c == b for _, c, _ in back[:i]))
            for i, (a, b, how) in enumerate(back)
        ),
        *(_drawn(b) for b in boxes.values()),
        legend,
    ]
    height = below + (40 if back else 0) + 2 * _MARGIN + _LINE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="11">\n'
        f"<title>{_escaped(data['job'])}</title>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _boxes(data: Mapping[str, Any]) -> tuple[dict[str, _Box], list[tuple[str, str, str]]]:
    """The steps by name, and which send rows back to which, and how these are dealt out."""
    steps = {s["name"]: s for s in data["logical"]}
    levels = {
        name: level["level"]
        for level in reversed(data["physical"])
        for step in level["steps"]
        for name in [step["name"], *step["fused"]]
    } | {o["name"]: o["level"] for o in data["outputs"]}
    sent = {(s["to"], s["from"]): s for level in data["physical"] for s in level["sends"]}
    loops = {s["detail"].removeprefix(_LOOP): s for s in steps.values() if _is_loop(s)}
    boxes: dict[str, _Box] = {}
    back: list[tuple[str, str, str]] = []
    for name, step in steps.items():
        if _is_loop(step) or name in loops:
            continue
        reads = [i for i in step["inputs"] if i not in loops]
        inputs = [(_step(i, steps), _dealt(sent.get((name, i)))) for i in reads]
        returning = [(i, loops[i]["inputs"][0]) for i in step["inputs"] if i in loops]
        back += [(_step(o, steps), name, _dealt(sent.get((name, i)))) for i, o in returning]
        tasks = max((s.get("tasks") or 0 for (to, _), s in sent.items() if to == name), default=0)
        lines = [_short(name), _short(step["kind"]), _short(_detail(step))]
        box = _Box(name, [line for line in lines if line], tasks, levels.get(name, 0), inputs)
        boxes[name] = box
    return boxes, back


def _is_loop(step: Mapping[str, Any]) -> bool:
    return bool(step["kind"] == "write" and step["detail"].startswith(_LOOP))


def _detail(step: Mapping[str, Any]) -> str:
    """What it does; of a bolt its class, for the arrows say the rest."""
    detail: str = step["detail"]
    return detail.partition(",")[0] if step["kind"] == "bolt" else detail


def _step(label: str, steps: Mapping[str, Any]) -> str:
    """The step of a port such as "split.late"."""
    name = label
    while name not in steps and "." in name:
        name = name.rpartition(".")[0]
    return name


def _dealt(sent: Mapping[str, Any] | None) -> str:
    if sent is None:
        return ""
    if sent.get("dealt"):
        return str(sent["dealt"]).partition(", to ")[0]
    return "to every task" if sent["every"] else "by " + ", ".join(sent["by"]) if sent["by"] else ""


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _place(boxes: dict[str, _Box], lowest: set[str]) -> tuple[dict[tuple[str, str], _Lanes], float]:
    """Columns by the longest way from an input; in a column one below the other, and below them the
    lanes of arrows that pass it. Returns those, by their ends, and how far down all of it goes."""
    for box in boxes.values():  # each after those it reads
        before = [boxes[name].layer + 1 for name, _ in box.inputs]
        box.layer = max(before, default=0)
    lanes: dict[tuple[str, str], _Lanes] = {}
    x = below = _MARGIN
    for layer in range(max((b.layer for b in boxes.values()), default=-1) + 1):
        column = [b for b in boxes.values() if b.layer == layer]
        column.sort(key=lambda b: b.name in lowest)
        wide, y = max(b.width for b in column), _MARGIN
        for box in column:
            box.x, box.y = x, y
            y += box.height + _ROW
        for after in boxes.values():
            for name in dict.fromkeys(n for n, _ in after.inputs):
                if boxes[name].layer < layer < after.layer:
                    lanes.setdefault((name, after.name), []).append((x, x + wide, y))
                    y += _LINE
        below = max(below, y - _ROW)
        leaving = [how for b in boxes.values() for n, how in b.inputs if boxes[n].layer == layer]
        label = max(map(len, map(_short, leaving)), default=0) * _CHAR
        x += wide + max(_GAP, label + 30)
    return lanes, below


def _drawn(box: _Box) -> str:
    colour = _COLOURS[min(box.level, len(_COLOURS) - 1)]
    shape = (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="6" fill="{colour}" stroke="#555"/>'
    )
    weights = ["bold", *["normal"] * len(box.lines)]
    texts = [
        f'<text x="{box.x + _PAD:.1f}" y="{box.y + _PAD + _LINE * (i + 0.75):.1f}" '
        f'font-weight="{weight}">{_escaped(line)}</text>'
        for i, (line, weight) in enumerate(zip(box.lines, weights, strict=False))
    ]
    y = box.y + box.height - _PAD - _DOT + 2
    dots = [
        f'<circle cx="{box.x + _PAD + _DOT + i * 3 * _DOT:.1f}" cy="{y:.1f}" r="{_DOT:.0f}" '
        'fill="#fff" stroke="#555"/>'
        for i in range(min(box.tasks, _DOTS))
    ]
    if box.tasks > _DOTS:
        x = box.x + _PAD + _DOTS * 3 * _DOT
        dots.append(f'<text x="{x:.1f}" y="{y + 4:.1f}">x {box.tasks}</text>')
    return "".join([f"<g><title>{_escaped(box.name)}</title>", shape, *texts, *dots, "</g>"])


def _arrow(before: _Box, after: _Box, how: str, port: int, lanes: _Lanes) -> str:
    x1, y1 = before.x + before.width, before.y + before.height / 2
    x2, y2 = after.x, after.port(port)
    way = f"M{x1:.1f},{y1:.1f}"
    for left, right, y in [*lanes, (x2, x2, y2)]:
        middle = (x1 + left) / 2
        way += f" C{middle:.1f},{y1:.1f} {middle:.1f},{y:.1f} {left:.1f},{y:.1f} H{right:.1f}"
        x1, y1 = right, y
    path = f'<path d="{way}" fill="none" stroke="#555" marker-end="url(#tip)"/>'
    label = (
        f'<text x="{x2 - 10:.1f}" y="{y2 - 6:.1f}" text-anchor="end" fill="#333" '
        f'font-style="italic">{_escaped(_short(how))}</text>'
    )
    return path + (label if how else "")


def _arrow_back(sender: _Box, reader: _Box, how: str, below: float, port: int) -> str:
    x1, y1 = sender.x + sender.width / 2, sender.y + sender.height
    x2, y2 = reader.x + reader.width / 3 - 8 * port, reader.y + reader.height
    y = below + 30
    return (
        f'<path d="M{x1:.1f},{y1:.1f} C{x1:.1f},{y:.1f} {x2:.1f},{y:.1f} {x2:.1f},{y2:.1f}" '
        'fill="none" stroke="#555" stroke-dasharray="5 3" marker-end="url(#tip)"/>'
        f'<text x="{x2 + 10:.1f}" y="{y2 + 14 + 12 * port:.1f}" fill="#333" '
        f'font-style="italic">{_escaped(_short(how))}</text>'
    )


def _legend(data: Mapping[str, Any], y: float) -> tuple[str, float]:
    """What the colours mean, and how wide that is."""
    parts, x = [], _MARGIN
    for level in data["physical"]:
        number = level["level"]
        words = f"level {number}: " + ("source tasks" if number == 0 else "tasks by slot")
        colour = _COLOURS[min(number, len(_COLOURS) - 1)]
        parts.append(
            f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="12" height="12" fill="{colour}" '
            f'stroke="#555"/><text x="{x + 18:.1f}" y="{y:.1f}">{words}</text>'
        )
        x += 18 + len(words) * _CHAR + 20
    return "\n".join(parts), x


def _escaped(text: str) -> str:
    """As XML may hold it: of control characters, which it may not, the picture of each."""
    pictures = {code: 0x2400 + code for code in range(32) if code not in (9, 10, 13)}
    return saxutils.escape(text.translate(pictures))
