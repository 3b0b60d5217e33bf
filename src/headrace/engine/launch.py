"""What Spark starts as the Python interpreter: asks the zygote for a process.

Runs without site-packages and imports next to nothing, so that it costs milliseconds. Then it turns
into a shell, which takes a twentieth of the memory and waits for as long as the process lives. When
the shell is terminated or killed, the process gets SIGTERM: Linux sends it as the connection closes
(`zygote.py`), at whatever moment that is; elsewhere the shell passes it on.
"""

import json
import os
import signal
import socket
import sys

# $1 is the process; the connection, as standard input, is closed when it ends.
_WAIT = "while read -r _; do :; done"
_PASS_ON = 'trap "kill -TERM $1" TERM; '


def main() -> None:
    os.setpgid(0, 0)  # what is sent to the driver's group is for the driver to interpret
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(os.environ["HEADRACE_ZYGOTE"])
    request = {
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
    }
    message = json.dumps(request).encode() + b"\n"
    socket.send_fds(connection, [message[:1]], [0, 1, 2])
    connection.sendall(message[1:])
    process = connection.makefile().readline().strip()
    os.dup2(connection.fileno(), 0)
    os.close(1)
    os.close(2)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a JVM starts us with it ignored
    wait = _WAIT if sys.platform == "linux" else _PASS_ON + _WAIT
    os.execv("/bin/sh", ["sh", "-c", wait, "sh", process])


if __name__ == "__main__":
    main()
