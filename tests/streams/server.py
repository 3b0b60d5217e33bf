"""A real HTTP server on loopback that is slow, fails and counts as its paths say.

/slow/20/x     answers "x" after 20 ms
/fail/2/x      fails twice for this path, then answers "x"
/down/x        always fails
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Server:
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.times: list[float] = []
        self.now = self.most = 0
        self.port = 0

    async def answer(self, reader: Any, writer: Any) -> None:
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()

    async def _answer(self, reader: Any, writer: Any) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = request.split(" ")[1]
        self.calls[path] += 1
        self.times.append(asyncio.get_running_loop().time())
        self.now += 1
        self.most = max(self.most, self.now)
        status, body = await self.act(path)
        self.now -= 1
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()

    async def act(self, path: str) -> tuple[str, str]:
        kind, *rest = path.strip("/").split("/")
        if kind == "slow":
            await asyncio.sleep(int(rest[0]) / 1_000)
            return "200 OK", rest[1]
        if kind == "fail" and self.calls[path] > int(rest[0]):
            return "200 OK", rest[1]
        return "500 Down", "no"


@contextmanager
def serving() -> Iterator[Server]:
    server, loop = Server(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    listening = asyncio.run_coroutine_threadsafe(
        asyncio.start_server(server.answer, "127.0.0.1", 0), loop
    ).result()
    server.port = listening.sockets[0].getsockname()[1]

    async def end() -> None:
        """Callers may have gone before they were answered."""
        listening.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def get(port: int, path: str) -> str:
    """The body of an answer; a status other than 200 raises."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: loopback\r\n\r\n".encode())
        text = (await reader.read()).decode()
    finally:
        writer.close()
    if " 200 " not in text.split("\r\n")[0]:
        raise ConnectionError(text.split("\r\n")[0])
    return text.split("\r\n\r\n")[1]
