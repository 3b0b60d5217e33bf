"""A bolt that stores tuples and processes a group of them, or all when a tick comes; it dies when
it processes certain ones, as by a database that refuses a value. Without anything of Headrace.

Its arguments are how many make a group, and the values that it does not survive; if the first of
these is "said", it says so before it ends, as pystorm does: an error, a sync that nobody has asked
for, and its tuples have failed.
"""

import json
import os
import sys

said = "said" in sys.argv
group, *fatal = (int(number) for number in sys.argv[1:] if number != "said")


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
            if said:
                send(command="error", msg="I cannot go on")
                send(command="sync")
                for one in stored:
                    send(command="fail", id=one["id"])
            sys.exit(4)
        for one in stored:
            send(command="emit", tuple=one["tuple"], anchors=[one["id"]], need_task_ids=False)
            send(command="ack", id=one["id"])
        stored.clear()
