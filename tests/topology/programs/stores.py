"""A bolt that stores tuples and processes a group of them, or all when a tick comes; it dies when
it processes certain ones, as by a database that refuses a value. Without anything of Headrace.

Its arguments are how many make a group, and the values that it does not survive.
"""

import json
import os
import sys

group, *fatal = map(int, sys.argv[1:])


def receive():
    lines = []
    for line in sys.stdin:
        if line == "end\n":
            return json.loads("".join(lines))
        lines.append(line)
    sys.exit(0)


def send(**message):
    print(json.dumps(message), "end", sep="\n", flush=True)


receive()
send(pid=os.getpid())
stored = []
while True:
    message = receive()
    if isinstance(message, list):
        continue
    if message["stream"] == "__heartbeat":
        send(command="sync")
        continue
    tick = message["stream"] == "__tick"
    if not tick:
        stored.append(message)
    if tick or len(stored) == group:
        if any(one["tuple"][0] in fatal for one in stored):
            sys.exit(4)
        for one in stored:
            send(command="emit", tuple=one["tuple"], anchors=[one["id"]], need_task_ids=False)
            send(command="ack", id=one["id"])
        stored.clear()
