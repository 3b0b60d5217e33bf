"""What Spark takes for the Python interpreter: asks the zygote for a process.

Runs without site-packages and imports next to nothing, so that it costs milliseconds. It
lives as long as the process it stands for, and passes a request to end on.
"""

import json
import os
import signal
import socket
import sys


def main() -> None:
    os.setpgid(0, 0)  # what is sent to the driver's group is for the driver to interpret
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(os.environ["HEADRACE_ZYGOTE"])
    wanted = {
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
    }
    message = json.dumps(wanted).encode() + b"\n"
    socket.send_fds(connection, [message[:1]], [0, 1, 2])
    connection.sendall(message[1:])
    process = int(connection.makefile().readline())
    signal.signal(signal.SIGTERM, lambda *_: os.kill(process, signal.SIGTERM))  # Spark's word
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    while connection.recv(1):  # closed when the process ends
        pass


main()
