"""A spout against Storm's multilang protocol, from scratch: numbers below its first argument.

It goes on after the id "last" of the handshake, and "ends" or "waits" after the last one, by its
second argument. The third is code that runs before each tuple: it sees `at`, the next number, and
calls `send`, `raw` and `once`.
"""

import json
import os
import sys
import time  # noqa: F401  for the code

end, last, code = int(sys.argv[1]), sys.argv[2], compile(sys.argv[3], "code", "exec")


def receive():
    lines = []
    for line in sys.stdin:
        if line == "end\n":
            return json.loads("".join(lines))
        lines.append(line)
    sys.exit(0)


def raw(text):
    sys.stdout.write(text + "\nend\n")


def send(**message):
    raw(json.dumps(message))


def once(path):
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


setup = receive()
send(pid=os.getpid())
context = setup["context"]
step = sum(name == context["componentid"] for name in context["task->component"].values())
at = context["taskid"] if context["last"] is None else context["last"] + step
while True:
    sys.stdout.flush()
    question = receive()
    if isinstance(question, list):
        continue
    if question["command"] == "ack" and "ACKS" in os.environ:
        with open(os.environ["ACKS"], "a") as file:
            print(question["id"], file=file)
    if question["command"] == "next" and at >= end:
        if last == "ends":
            sys.exit(0)
    elif question["command"] == "next":
        exec(code)
        send(command="emit", id=at, tuple=[at])
        at += step
    send(command="sync")
