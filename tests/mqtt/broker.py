"""A real mosquitto on loopback, with stored sessions; killed and started again by tests."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest

PATIENCE = 20.0
PROGRAM = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
needs_broker = pytest.mark.skipif(
    PROGRAM is None,
    reason="no mosquitto here: apt-get install mosquitto (tools/bootstrap.sh does, as root)",
)


class ScriptedBroker:
    """Answers one client at a time, as a broker that refuses subscriptions or is slow does."""

    def __init__(self, granted: int = 1, pause: float = 0.0, most: int = 10**9) -> None:
        self._granted, self._pause, self._most = granted, pause, most  # most acknowledgements
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client = self._server.accept()[0]
            except OSError:
                return
            with client, client.makefile("rb") as stream, suppress(OSError):
                while head := stream.read(1):
                    self._answer(client, head[0], stream.read(_length(stream)))

    def _answer(self, client: socket.socket, kind: int, body: bytes) -> None:
        if kind == 0x10:  # of MQTT 3.1.1; another version is refused
            client.sendall(b"\x20\x02\x00" + (b"\x00" if body[6] == 4 else b"\x01"))
        elif kind == 0x82:
            client.sendall(b"\x90\x03" + body[:2] + bytes([self._granted]))
        elif kind == 0xA2:
            client.sendall(b"\xb0\x02" + body[:2])
        elif kind >> 4 == 3 and self._most > 0:
            self._most -= 1
            time.sleep(self._pause)
            at = 2 + int.from_bytes(body[:2])
            client.sendall(b"\x40\x02" + body[at : at + 2])

    def stop(self) -> None:
        self._server.close()


def _length(stream: BinaryIO) -> int:
    found = shift = 0
    while True:
        octet = stream.read(1)[0]
        found, shift = found | (octet & 127) << shift, shift + 7
        if octet < 128:
            return found


class Broker:
    def __init__(self, folder: Path, more: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port: int = server.getsockname()[1]
        self._config = folder / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {folder}/\nautosave_interval 1\nautosave_on_changes true\n"
            f"max_queued_messages 0\nmax_inflight_messages 200\nuser root\n{more}"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        assert PROGRAM is not None
        self._process = subprocess.Popen(
            [PROGRAM, "-c", str(self._config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end and self._process.poll() is None
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None
