"""`python -m bench [NAMES] [--quick] [--pairs N]`: run the jobs, print one table, keep the figures.

With `--against TREE` no other engine runs: Headrace of this tree and of the checkout TREE (its
`.venv` made ready by any of its verbs) take turns, and the table shows this one's time and
memory as ratios to the other's; nothing goes to the history.

Ends with 1 when a contender failed or results differ; a missed target is shown, not an
error, for on a busy machine it means nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from bench import plot, table
from bench.against import COMPARED, SideBySide
from bench.jobs import NAMES
from bench.measure import Failed, Lab
from bench.rows import Row


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    asked = parser.parse_args(arguments)
    unknown = set(asked.names) - set(NAMES)
    if unknown:
        parser.error(f"no job {', '.join(sorted(unknown))}; the jobs are {', '.join(NAMES)}")
    if asked.against:
        return _against(asked)
    lab = Lab(quick=asked.quick, reps=asked.pairs, say=lambda line: print(line, flush=True))
    rows: list[Row] = []
    failures: list[Failed] = []
    for name in asked.names or NAMES:
        print(f"{name.upper()}: {_first_line(name)}  (load {os.getloadavg()[0]:.1f})", flush=True)
        try:
            rows += import_module(f"bench.jobs.{name}").rows(lab)
        except Failed as failure:
            failures.append(failure)
            print(failure, flush=True)
    if rows:
        _keep(rows, lab, whole=not asked.names and not failures)
    for failed in failures:
        print(f"failed: {str(failed).splitlines()[0]}", file=sys.stderr)
    return 1 if failures else 0


def _against(asked: argparse.Namespace) -> int:
    lab = SideBySide(asked.against, quick=asked.quick, reps=asked.pairs)
    failures = []
    for name in asked.names or COMPARED:
        print(f"{name.upper()}: {_first_line(name)}  (load {os.getloadavg()[0]:.1f})", flush=True)
        try:
            import_module(f"bench.jobs.{name}").rows(lab)
        except Failed as failure:
            failures.append(failure)
            print(failure, flush=True)
    lab.show()
    return 1 if failures else 0


def _keep(rows: list[Row], lab: Lab, whole: bool) -> None:
    table.show(rows, lab)
    print(f"all figures: {table.keep(rows, lab)}; history: {table.HISTORY}")
    if whole and not lab.quick:
        print(f"picture: {plot.draw(rows, table.about_run(lab), table.history())}")


def _first_line(name: str) -> str:
    text = import_module(f"bench.jobs.{name}").__doc__ or ""
    return text.splitlines()[0].partition(": ")[2]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", type=str.lower)
    parser.add_argument("--quick", action="store_true", help="small sizes: do both agree?")
    parser.add_argument("--pairs", type=int, help="how often each contender runs")
    parser.add_argument("--against", type=Path, metavar="TREE", help="compare with a checkout")
    return parser


if __name__ == "__main__":
    sys.exit(main())
