"""A bolt against Storm's multilang protocol, from scratch; without anything of Headrace.

Its argument is the code that processes a tuple: it sees `id`, `values`, `message` and `n`, how many
tuples this process has had, and calls `emit`, `ack`, `fail`, `send` and `raw`.
"""

import json
import os
import sys
import time  # noqa: F401  for the code

code = compile(sys.argv[1], "code", "exec")


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


def emit(*values, **more):
    send(command="emit", tuple=values, **{"anchors": [scope["id"]], "need_task_ids": False, **more})


def ack(id=None):
    send(command="ack", id=scope["id"] if id is None else id)


def fail(id=None):
    send(command="fail", id=scope["id"] if id is None else id)


def die(code=3):
    sys.stdout.flush()
    print("I cannot go on", file=sys.stderr)
    sys.exit(code)


def once(path):
    """Whether this is the first time, in the life of all processes."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


scope = dict(globals(), n=0, setup=receive())
with open(os.path.join(scope["setup"]["pidDir"], str(os.getpid())), "w"):
    pass
send(pid=os.getpid())
while True:
    sys.stdout.flush()
    message = receive()
    if isinstance(message, list):
        continue
    if message["stream"] == "__heartbeat":
        send(command="sync")
        continue
    scope.update(id=message["id"], values=message["tuple"], message=message, n=scope["n"] + 1)
    exec(code, scope)
