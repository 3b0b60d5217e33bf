"""Storm's multilang protocol for programs that write messages together; nothing of Headrace."""

import json
import os
import sys


def read():
    lines = []
    for line in sys.stdin:
        if line == "end\n":
            return json.loads("".join(lines))
        lines.append(line)
    sys.exit()


def text(**message):
    return json.dumps(message) + "\nend\n"


def say(*texts, newline="\n"):
    """All in one write."""
    sys.stdout.buffer.write("".join(texts).replace("\n", newline).encode())
    sys.stdout.buffer.flush()


def shake_hands(newline="\n"):
    setup = read()
    say(text(pid=os.getpid()), newline=newline)
    return setup
