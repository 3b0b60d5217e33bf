"""E-mail digest: what is new for a member comes in one message, not in fifty.

Updates come from the topic `updates`. A member gets at most one mail an hour. An ordinary update
waits half an hour for company, an urgent one only for that hour. `python -m examples.digest` plays
it; or fill the topic with `python -m examples.data.digest`, then `headrace run examples/digest.py`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import headrace as hr

HOUR = 3_600_000  # ms
PERIOD = HOUR  # at most one mail in this time
PATIENCE = {"urgent": 0, "normal": HOUR // 2, "low": 6 * HOUR}
SHOWN = 5  # lines in a mail; the rest is counted


@dataclass
class Update:
    member: str
    priority: str
    text: str
    at: datetime


@dataclass
class Waiting:
    at: int
    priority: str
    text: str


class Digest(hr.KeyedProcess):
    """Stores the updates that have not been mailed to a member yet; a timer sends them.

    When a mail is due follows from the state alone, so the division into batches does not matter.
    """

    output = "member string, at timestamp, subject string, lines array<string>, more int"
    waiting = hr.list_of(Waiting, ttl="2d")
    sent = hr.value(int, default=0, ttl="2d")  # when the last mail was, in ms

    def on_row(self, row, ctx):
        self.waiting.append(Waiting(ctx.time, row.priority, row.text))
        ctx.timer(self.due())

    def on_timer(self, time, ctx):
        while self.waiting and self.due() <= ctx.watermark:
            yield self.mail(ctx.key, self.due())
        if self.waiting:
            ctx.timer(self.due())

    def due(self):
        return max(self.sent + PERIOD, min(w.at + PATIENCE[w.priority] for w in self.waiting))

    def mail(self, member, at):
        news = [w for w in self.waiting if w.at <= at]  # what came later is for the next one
        self.waiting = [w for w in self.waiting if w.at > at]
        self.sent = at
        news.sort(key=lambda w: (PATIENCE[w.priority], w.at, w.text))
        subject = news[0].text if len(news) == 1 else f"{news[0].text}, and {len(news) - 1} more"
        lines = [f"{w.priority}: {w.text}" for w in news[:SHOWN]]
        moment = datetime.fromtimestamp(at / 1_000, UTC)
        return (member, moment, subject, lines, max(0, len(news) - SHOWN))


job = hr.Job("digest")
updates = job.read("log:updates", schema=Update, format="json", time="at", delay="2s")
mails = updates.key_by("member").process(Digest())  # its state expires after two days

mails.write("log:mails")

if __name__ == "__main__":
    from examples.data import digest, playing

    playing.play(job, digest)
