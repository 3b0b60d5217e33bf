"""A spout that emits -1 when it is activated and 100 + n when n is acked, besides 0, 1, 2."""

import sys

from speaking import read, say, shake_hands, text

at = 0
shake_hands()
while True:
    question = read()
    if isinstance(question, list):
        continue
    if question["command"] == "activate":
        say(text(command="emit", tuple=[-1]))
    elif question["command"] == "ack" and question["id"] is not None:
        say(text(command="emit", tuple=[100 + question["id"]], need_task_ids=False))
    elif question["command"] == "next":
        if at == int(sys.argv[1]):
            sys.exit()
        say(text(command="emit", id=at, tuple=[at], need_task_ids=False))
        at += 1
    say(text(command="sync"))
