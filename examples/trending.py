"""Trending hashtags: the first five of the last 5 minutes, every 30 s, by count and by growth.

Posts come from the topic `posts`: fill it with `python -m examples.posts`, then
`headrace run examples/trending.py`.
"""

import re
from dataclasses import dataclass
from datetime import datetime

import headrace as hr

EVERY = 30_000  # ms


@dataclass
class Post:
    text: str
    at: datetime


def tags(post):
    return [{"tag": tag} for tag in re.findall(r"#(\w+)", post.text.lower())]


class Trends(hr.WindowProcess):
    """The five first by count and by growth; it remembers the counts of the window before."""

    before = hr.value(dict[str, int], default={})
    ended = hr.value(int, default=0)

    def process(self, key, window, rows):
        counts = {row.tag: row.n for row in rows}
        before = dict(self.before) if self.ended == window.end - EVERY else {}
        growth = {tag: n - before.get(tag, 0) for tag, n in counts.items()}
        self.before, self.ended = counts, window.end
        for by, score in (("count", counts), ("growth", growth)):
            first = sorted(score, key=lambda tag: (-score[tag], tag))[:5]
            for place, tag in enumerate(first, 1):
                yield (by, place, tag, counts[tag], growth[tag])


job = hr.Job("trending")
posts = job.read("log:posts", schema=Post, format="json", time="at", delay="2s", max_skew="1h")
by_tag = posts.flat_map(tags, schema="tag string").key_by("tag")
counts = by_tag.window(hr.sliding("5m", every="30s")).agg(n=hr.count())

# A result's time is the last millisecond of its window: all results of one sliding window fall
# into one tumbling window of its step. One task compares them, so state is one window's counts.
trends = counts.window(hr.tumbling("30s")).process(
    Trends(), schema="by string, place int, tag string, n bigint, growth bigint", unbounded=True
)
trends.where("place = 1").write("console:", name="first")
trends.write("files:.headrace/trending/trends")
counts.late.write("files:.headrace/trending/late")
