"""Word count three ways: each second, the last minute, and the last minute from the seconds.

Lines come over a socket: `python -m examples.lines --port 9999` (or `nc -lk 9999`), then
`headrace run examples/word_count.py`. LINES names another input: LINES=log:lines.
"""

import os
import re

import headrace as hr


def words(line):
    return [{"word": word} for word in re.findall(r"[a-z']+", line.value.lower())]


job = hr.Job("word-count")
source = os.environ.get("LINES", "socket:localhost:9999")
lines = job.read(source, format="text", time=hr.ingestion(), name="lines")
by_word = lines.flat_map(words, schema="word string").key_by("word")

# Each second: windows that follow one another.
each_second = by_word.window(hr.tumbling("1s")).agg(n=hr.count())

# The last minute, every second. It is incremental as it stands: rows are counted into panes
# of a second, once, and a window is merged from sixty of them. Nothing is subtracted.
last_minute = by_word.window(hr.sliding("60s", every="1s")).agg(n=hr.count())

# The same by hand, from the counts of the seconds: a window on a window.
from_seconds = each_second.key_by("word").window(hr.sliding("60s", every="1s")).agg(n=hr.sum("n"))

each_second.write("console:", name="each second")
last_minute.write("files:.headrace/word-count/last-minute")
from_seconds.write("files:.headrace/word-count/from-seconds")
