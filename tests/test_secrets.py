"""A secret in an address is neither stored nor shown, whatever the kind and the spelling."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.connect.http_client import wrong_url
from headrace.connect.iceberg import IcebergPlace
from headrace.errors import HeadraceError
from headrace.schema import schema_of
from headrace.secrets import exposed, without_secrets
from headrace.sinks import open_sink
from headrace.sources import open_source
from headrace.testing import drive
from tests.databases import new_table, postgres_uri, server
from tests.joins.postgres import PASSWORD

S = "s3cret"
ROWS = schema_of("k bigint, v string")
REFUSED = [
    f"sql:postgresql://me@h/db?sslpassword={S}",
    f"sql:postgresql://me@h/db?a=b&ssl%70assword={S}",
    f"sql:postgresql://me@h/db?password=x&password={S}",
    f"sql:postgresql://me@h/db?PASSWORD={S}",
    f"sql:postgresql://me@h/db?oauth_client_secret={S}",
    f"sql:postgresql://me@h/db?scram_client_key={S}",
    f"sql:postgresql://me:x/{S}@h/db",
    f"sql:postgresql://me:?{S}@h/db",
    f"sql:postgresql:me:{S}@h/db",
    f"kafka://me:x/{S}@h:9092/topic",
    f"kafka://h:9092/topic?sasl.password={S}",
    f"mqtt:me:{S}@h:1883/topic",
    f"mqtt:h:1883/topic?token={S}",
    f"webhook:https://h/x?access_token={S}",
    f"webhook:https://h/x?a=1&api-key={S}",
    f"webhook:https://me:a/{S}@h/x",
    f"sse:https://h/x?sig={S}",
    f"delta:az://box/table?sig={S}",
    f"delta:s3://id:a/{S}@box/table",
    f"http:me:{S}@127.0.0.1:80/x",
    f"socket:me:{S}@h:80",
]


def _told(call: Any, *args: Any, **options: Any) -> str:
    """Everything that is said of the error which the call raises."""
    with pytest.raises(HeadraceError) as caught:
        call(*args, **options)
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("uri", REFUSED)
def test_an_address_with_a_secret_is_refused_without_showing_it(uri, tmp_path, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    table = {"table": "t"} if uri.startswith("sql:") else {}

    def written() -> None:
        job = hr.Job("j")
        job.read(hr.rows([{"k": 1, "v": "a"}])).write(uri, **table)
        drive(job, tmp_path / "job")

    def read() -> None:
        job = hr.Job("j")
        job.read(uri, schema="k bigint, v string", **table).write("collect:")
        drive(job, tmp_path / "job")

    said = [
        _told(written),
        _told(read),
        _told(open_sink, uri, ROWS, table, str(tmp_path), "o"),
        _told(open_source, uri, ROWS, options=table, folder=str(tmp_path)),
        caplog.text,
        *capsys.readouterr(),
    ]

    assert all(S not in text for text in said)
    assert all(S.encode() not in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())


@pytest.mark.parametrize(
    "uri",
    ["files:in/a?password=1/*.json", "files:me:x@y", "log:a", "sql:sqlite:/a?token=b@c:d@e",
     "delta:lake/a:b@c?key=1", "sql:postgresql://me@h:5432/a@b?sslmode=require&sslkey=/a/key.pem",
     "sql:postgresql://h/db?passfile=/home/me/.pgpass", "webhook:https://h:8080/@me/x?kind=token",
     "sse:http://[::1]:80/x?keys=5&monkey=2", "kafka://a:1,b:2/topic", "mqtt:h:1883/a/@b:c/+",
     "http:127.0.0.1:80/me:x@y", "socket:[::1]:9999", "delta:s3://box/a@b", "iceberg:a.b"],
)  # fmt: skip
def test_what_only_looks_like_one_may_be_written(uri):
    assert exposed(without_secrets(uri, {})[0]) is None


@pytest.mark.parametrize("spelled", ["{user}:{pw}@", "{user}@ ?password={pw}", "{user}:{code}@"])
def test_a_password_is_nowhere_in_a_jobs_folder(spelled, tmp_path, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    plain = postgres_uri().partition("://")[2].partition("@")[2]
    code = "".join(f"%{ord(c):02x}" for c in PASSWORD)
    user, _, settings = spelled.format(user="me", pw=PASSWORD, code=code).partition(" ")
    user = user.replace("me", server().url.partition("://")[2].partition(":")[0])
    uri, table = f"sql:postgresql://{user}{plain}{settings}", new_table("postgresql")
    job = hr.Job("j")
    job.read(hr.rows([{"k": 1, "v": "a"}]), name="in").write(uri, table=table, name="out")

    drive(job, tmp_path / "job")

    after = hr.Job("k")
    after.read(uri, table=table, name="in").write("collect:", name="out")
    drive(after, tmp_path / "after")
    said = caplog.text + "".join(capsys.readouterr()) + str(job.explain()) + str(after.explain())
    files = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert files and PASSWORD not in said and code not in said
    assert all(t.encode() not in f for t in (PASSWORD, code) for f in files)


def test_a_catalog_is_described_without_what_may_hold_a_secret(tmp_path: Path) -> None:
    place = IcebergPlace(
        "a.b",
        {"type": "sql", "name": "x", "uri": f"postgresql://me@h/db?password={S}",
         "warehouse": f"s3://id:{S}@box", "s3.secret-access-key": S},
    )  # fmt: skip
    assert S not in f"{place.shown}{place.label}{place!r}"
    assert IcebergPlace("a.b", {"uri": "http://h/x", "warehouse": "w"}).shown == {
        "uri": "http://h/x",
        "warehouse": "w",
    }


def test_what_is_wrong_with_an_address_is_said_without_a_part_of_it():
    assert S not in wrong_url(f"https://me:{S}/x@h/y")
