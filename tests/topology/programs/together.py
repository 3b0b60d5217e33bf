"""A bolt that emits 7: for each tuple, or in one write with the sync that ends a batch.

together.py LINE-END [after]
"""

import sys

from speaking import read, say, shake_hands, text

NEWLINE, AFTER = sys.argv[1].replace("CRLF", "\r\n").replace("LF", "\n"), "after" in sys.argv
SEVEN = text(command="emit", tuple=[7], need_task_ids=False)

shake_hands(NEWLINE)
while True:
    tup = read()
    if isinstance(tup, list):
        continue
    if tup["stream"] == "__heartbeat":
        say(text(command="sync"), SEVEN if AFTER else "", newline=NEWLINE)
    else:
        say("" if AFTER else SEVEN, text(command="ack", id=tup["id"]), newline=NEWLINE)
