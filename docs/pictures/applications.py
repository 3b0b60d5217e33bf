"""The pictures of the guide's page of examples: what the examples give over all their records.

python docs/pictures/applications.py [folder]
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from headrace.cli.loading import load_job
from headrace.inspect.progress import Progress
from headrace.testing import Driver

ROOT = Path(__file__).resolve().parents[2]
BLUE, RED, GREEN, GREY, PALE = "#3182bd", "#de2d26", "#31a354", "#636363", "#deebf7"
PRIORITIES = {"urgent": RED, "normal": BLUE, "low": "#9ecae1"}
TASKS = {  # where the boxes of the enrolment stand
    "unpack": (0, 1), "validate": (1, 1), "demographics": (2, 1), "review": (2.5, 0),
    "quality": (3, 1), "biometrics": (4, 1), "adjudicate": (4.5, 0), "issue": (5, 1),
}  # fmt: skip
ON = [("unpack", "validate"), ("validate", "demographics"), ("demographics", "quality"),
      ("quality", "biometrics"), ("biometrics", "issue"), ("review", "quality"),
      ("adjudicate", "issue")]  # fmt: skip
ASIDE = [("demographics", "review"), ("biometrics", "adjudicate")]
REJECT = ("unpack", "validate", "review", "quality", "adjudicate")


@contextlib.contextmanager
def played(name: str) -> Iterator[Progress]:
    """Run an example in this process, and stay where its outputs are."""
    sys.path.insert(0, str(ROOT))
    from examples.data.playing import fill

    before = dict(os.environ)
    quiet = contextlib.redirect_stdout(io.StringIO())
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), quiet:
        os.environ["HEADRACE_LOG"] = str(Path(folder) / "log")
        try:
            fill(import_module(f"examples.data.{name}").topics())
            driver = Driver(load_job(ROOT / "examples" / f"{name}.py"), "job")
            last = driver.drain()
            driver.close()
            assert last is not None
            yield last
        finally:
            os.environ.clear()
            os.environ.update(before)


def enrolment(folder: Path) -> None:
    """The dataflow: what each task simulates, and how many packets took each edge."""
    sys.path.insert(0, str(ROOT))
    from examples.enrolment import SIMULATED

    os.environ["TASKS"] = json.dumps({task: [0, share] for task, (_, share) in SIMULATED.items()})
    try:
        with played("enrolment") as progress:
            steps = progress.steps
    finally:
        del os.environ["TASKS"]
    figure, axis = plt.subplots(figsize=(10, 3.4), layout="constrained")
    for task, (x, y) in TASKS.items():
        latency, share = SIMULATED[task]
        label = f"{task}\n{latency} ms" + (f", {share:.0%}" if share < 1 else "")
        axis.text(x, y, label, ha="center", va="center", fontsize=9,
                  bbox={"boxstyle": "round,pad=0.4", "fc": PALE, "ec": BLUE})  # fmt: skip
    for edge, pairs, colour in (("P", ON, GREEN), ("F", ASIDE, RED)):
        for a, b in pairs:
            _arrow(axis, TASKS[a], TASKS[b], steps[f"{a}.{edge}"]["out"], colour)
    for task in REJECT:
        (x, y), n = TASKS[task], steps[f"{task}.F"]["out"]
        _arrow(axis, (x, y), (x, y - 0.72), n, RED, "rejected")
    _arrow(axis, TASKS["issue"], (5.9, 1), steps["issue"]["out"], GREEN, "numbers")
    axis.set(xlim=(-0.4, 6.2), ylim=(-0.95, 1.35))
    axis.axis("off")
    figure.savefig(folder / "enrolment.png", dpi=100)
    plt.close(figure)


def _arrow(axis: Any, a: Any, b: Any, n: int, colour: str, end: str = "") -> None:
    room = 42 if a[1] == b[1] else 26
    shrink = {"shrinkA": room, "shrinkB": 4 if end else room}
    axis.annotate("", b, a, arrowprops={"arrowstyle": "->", "color": colour, **shrink})
    middle = ((a[0] + b[0]) / 2 + 0.03, (a[1] + b[1]) / 2 + (0.06 if a[1] == b[1] else 0))
    axis.text(*middle, str(n), color=colour, fontsize=8, ha="left" if a[1] != b[1] else "center")
    if end:
        side = {"va": "top"} if a[0] == b[0] else {"va": "center", "ha": "left"}
        axis.text(*b, end, fontsize=8, color=colour, **({"ha": "center"} | side))


def page_views(folder: Path) -> None:
    """The dashboard's counts, the outages there were, and what the alerts said."""
    with played("page_views"):
        from examples.data.page_views import OUTAGES
        from examples.data.playing import BEGIN, topic

        counts, alerts = topic("dashboard"), topic("alerts")
    figure, axis = plt.subplots(figsize=(9, 3.4), layout="constrained")
    for number, colour in ((0, GREY), (1, BLUE), (3, GREEN)):
        page = f"/page/{number}"
        own = sorted((r["window_end"].timestamp() - BEGIN, r["views"])
                      for r in counts if r["page"] == page)  # fmt: skip
        axis.plot(*zip(*own, strict=True), color=colour, lw=1.4, label=page)
        for outage in OUTAGES:
            if outage.page == page:
                axis.axvspan(outage.start, outage.end, color=colour, alpha=0.12, lw=0)
        for alert in (a for a in alerts if a["page"] == page):
            at, mark = alert["at"].timestamp() - BEGIN, "v" if alert["failing"] else "^"
            axis.scatter(at, -6, marker=mark, color=RED if alert["failing"] else GREEN, zorder=3)
            axis.axvline(at, color=RED if alert["failing"] else GREEN, lw=0.8, ls=":")
    axis.set(xlabel="seconds", ylabel="views in 10 s", xlim=(0, 600), ylim=(-12, 118))
    axis.set_title("Shaded: a page fails. Marks: the alerts that say so, and that it is well again",
                   loc="left", fontsize=10)  # fmt: skip
    axis.legend(frameon=False, fontsize=8, loc="upper right", ncols=3)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "page-views.png", dpi=100)
    plt.close(figure)


def digest(folder: Path) -> None:
    """What came for three members in the first day, and what they were sent."""
    with played("digest"):
        from examples.data.digest import updates
        from examples.data.playing import BEGIN, topic

        mails, came = topic("mails"), [json.loads(u) for u in updates()]
    members = ["member00", "member02", "member05"]
    figure, axis = plt.subplots(figsize=(9, 2.8), layout="constrained")
    for y, member in enumerate(reversed(members)):
        for priority, colour in PRIORITIES.items():
            own = (u for u in came if u["member"] == member and u["priority"] == priority)
            hours = [(datetime.fromisoformat(u["at"]).timestamp() - BEGIN) / 3_600 for u in own]
            axis.scatter(hours, [y + 0.12] * len(hours), s=14, color=colour,
                         label=priority if y == 0 else None)  # fmt: skip
        sent = [(m["at"].timestamp() - BEGIN) / 3_600 for m in mails if m["member"] == member]
        axis.vlines(
            sent, y - 0.3, y - 0.05, color="black", lw=1.6, label="mail" if y == 0 else None
        )
    axis.set_yticks(range(3), list(reversed(members)))
    axis.set(xlim=(0, 24), ylim=(-0.6, 2.9), xlabel="hours")
    axis.legend(frameon=False, fontsize=8, loc="upper center", ncols=4)
    axis.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(folder / "digest.png", dpi=100)
    plt.close(figure)


def main(folder: Path) -> None:
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for draw in (enrolment, page_views, digest):
        draw(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
