"""A spout of the numbers up to 5, which writes every second one in one piece with a sync."""

import sys

from speaking import read, say, shake_hands, text


def emit(n):
    return text(command="emit", id=n, tuple=[n], need_task_ids=False)


last = shake_hands()["context"]["last"]
at = 0 if last is None else last + 1
while True:
    question = read()
    if isinstance(question, list):
        continue
    if question["command"] != "next":
        say(text(command="sync"))
        continue
    if at >= 6:
        sys.exit()
    say(emit(at), text(command="sync"), emit(at + 1))
    at += 2
