"""A REST interface on a free loopback port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.server.http import HttpServer, serve
from tests.server.memory_service import MemoryService
from tests.server.rest_client import TOKENS


@pytest.fixture
def service() -> MemoryService:
    return MemoryService("shop", "fire alarm")


@pytest.fixture
def rest(service: MemoryService) -> Iterator[HttpServer]:
    with serve(service, port=0, tokens=TOKENS) as server:
        yield server
