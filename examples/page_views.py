"""Page views to many consumers: one input, read once; each output has its own pace.

Archive: every view, with every batch. Dashboard: views of each page, every 10 seconds. Alerts:
when a page begins to fail and when it is well again. Mails: to its author, when a page was seen
often. `python -m examples.page_views` plays it; or fill the topic `views` with
`python -m examples.data.page_views`, then `headrace run examples/page_views.py --until end`.
"""

from dataclasses import dataclass
from datetime import datetime

import headrace as hr
from headrace import col


@dataclass
class View:
    page: str
    author: str
    visitor: str
    status: int
    at: datetime


class Health(hr.KeyedProcess):
    """A page is ill when a fifth of its views fail, and well again when hardly any do."""

    output = "page string, failing boolean, share double, at timestamp"
    failing = hr.value(bool, default=False)

    def on_row(self, row, ctx):
        share = row.failed / row.views
        if row.views >= 20 and not self.failing and share > 0.2:
            self.failing = True
        elif self.failing and share < 0.05:
            self.failing = False
        else:
            return None
        return (row.page, self.failing, share, row.window_end)


job = hr.Job("page-views")
views = job.read("log:views", schema=View, format="json", time="at", delay="2s", max_skew="1h")
by_page = views.key_by("page")

# Dashboard: one window after the other.
dashboard = by_page.window(hr.tumbling("10s")).agg(
    views=hr.count(), visitors=hr.count_distinct("visitor")
)

# Alerts: how many of a minute's views failed, every 10 seconds; emitted when it changes.
failed = hr.sum(hr.when(col("status") >= 500, 1).otherwise(0))
minute = by_page.window(hr.sliding("60s", every="10s")).agg(views=hr.count(), failed=failed)
alerts = minute.key_by("page").process(Health(), unbounded=True)

# Mails: a running count of the good views; few rows of it are news.
good = views.where("status < 400").key_by("page", "author")
seen = good.agg(seen=hr.count(), unbounded=True).where(col("seen").isin(100, 1_000, 10_000))
mails = seen.select(
    to="author", subject="concat(page, ' was seen ', cast(seen as string), ' times')"
)

views.write("files:.headrace/page-views/archive")
dashboard.write("log:dashboard")
alerts.write("log:alerts")
mails.write("log:mails")
mails.write("console:", name="mailed")
dashboard.late.write("files:.headrace/page-views/late")

if __name__ == "__main__":
    from examples.data import page_views, playing

    playing.play(job, page_views)
