"""From PostgreSQL and Kafka to Delta, Kafka and a webhook: killed again and again, all are equal.

Three kills here; twenty are in chaos/test_many_places.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.many_places import Shop


def test_killed_while_rows_come_all_outputs_equal_the_model(kafka, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    try:
        for crash in ("sink.publish:2", None, "sink.webhook.posted:1"):
            shop.live_and_be_killed(crash)
        shop.live_until_all_is_there()
        shop.check()
    finally:
        shop.close()


@pytest.mark.spark
def test_the_same_on_spark_killed_once(kafka, tmp_path: Path) -> None:
    shop = Shop(tmp_path, seed=2)
    try:
        shop.trade(30)
        killed = shop.start("spark", crash="sink.publish:2")
        assert killed.wait(150) != 0
        shop.trade(30)
        assert shop.start("spark").wait(150) == 0, (tmp_path / "said").read_text()
        shop.check()
    finally:
        shop.close()
