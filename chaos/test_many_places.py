"""From PostgreSQL and Kafka to Delta, Kafka and a webhook: killed twenty times, all are equal."""

from __future__ import annotations

from pathlib import Path

from tests.engine.many_places import Shop

KILLS = 20


def test_killed_twenty_times_all_outputs_equal_the_model(tmp_path: Path) -> None:
    shop = Shop(tmp_path, seed=20)
    try:
        shop.lives(KILLS)
        shop.live_until_all_is_there()
        shop.check()
    finally:
        shop.close()
