"""A bolt that emits -1 when it starts, as Storm's tester_bolt.py; at 5 it dies, but only once.

starting.py FILE, which is there when it has died.
"""

import os
import sys

from speaking import read, say, shake_hands, text

shake_hands()
say(text(command="emit", tuple=[-1]))
say(text(command="metrics", name="started", params=1))
while True:
    tup = read()
    if isinstance(tup, list):
        continue
    if tup["stream"] == "__heartbeat":
        say(text(command="sync"))
        continue
    if tup["tuple"] == [5] and not os.path.exists(sys.argv[1]):
        os.close(os.open(sys.argv[1], os.O_CREAT))
        sys.exit(3)
    say(text(command="emit", tuple=tup["tuple"], need_task_ids=False))
    say(text(command="ack", id=tup["id"]))
