"""The status of a run on the terminal: a live line, or plain lines where nobody watches."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from headrace.runtime.progress import Progress

_EVERY = 5.0  # seconds between plain lines


class Reporter:
    """Prints what a run does; knows nothing of how it does it."""

    def __init__(self, job: str, console: Console | None = None) -> None:
        self._job = job
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._shown = 0.0
        self._last: Progress | None = None
        self._rate = 0.0

    def __enter__(self) -> Reporter:
        self._console.print(f"{self._job}: starting Spark", highlight=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def started(self, run: Any) -> None:
        """Say what the state is and what the outputs offer, then go live."""
        if run.comparison is not None:
            for line in str(run.comparison).splitlines():
                self._say(f"  {line}")
        for name, guarantee in run.guarantees.items():
            self._say(f"  output {name}: {guarantee}")
        if self._console.is_terminal:
            self._live = Live(Text(f"{self._job}: first batch"), console=self._console)
            self._live.start()

    def progress(self, progress: Progress) -> None:
        self._rate = _rate(self._last, progress, self._rate)
        self._last = progress
        line = status_line(self._job, progress, self._rate)
        if self._live is not None:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"))
        elif time.monotonic() - self._shown >= _EVERY:
            self._shown = time.monotonic()
            self._say(line)

    def finished(self, run: Any) -> None:
        self._close()
        status, progress = run.status, run.progress
        self._say(f"{self._job}: {status.state} after epoch {status.epoch}")
        if progress is not None:
            for line in account(progress):
                self._say(f"  {line}")

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def status_line(job: str, p: Progress, rate: float) -> str:
    """One line: rate, lag, watermark and its delay, batch time by phase, late, dead, state."""
    phases = " ".join(f"{name} {ms:.0f}" for name, ms in p.timing.items() if ms >= 1)
    watermark = "-"
    if p.watermark is not None:
        shown = time.strftime("%H:%M:%S", time.gmtime(p.watermark / 1_000))
        watermark = f"{shown} ({(p.committed - p.watermark) / 1_000:,.1f}s behind)"
    return (
        f"{job}: epoch {p.epoch}  {rate:,.0f} rows/s  lag {p.lag:,}  watermark {watermark}  "
        f"batch {p.took} ms ({phases})  late {p.late:,}  dead {p.dead:,}  "
        f"state {sum(p.held.values()):,} rows"
    )


def account(p: Progress) -> list[str]:
    """Where every record went: read = used + filtered + late + dead."""
    lines = []
    for name, c in p.counts.items():
        lines.append(
            f"{name}: read {c['read']:,} = used {c['used']:,} + filtered {c['filtered']:,} "
            f"+ late {c['late']:,} + dead {c['dead']:,}"
        )
    lines += [f"{name}: wrote {rows:,}" for name, rows in p.outputs.items()]
    return lines


def _rate(before: Progress | None, now: Progress, known: float) -> float:
    since = now.committed - (before.committed if before else now.clock)
    latest = now.read * 1_000 / max(since, 1)
    return latest if before is None else 0.7 * known + 0.3 * latest
