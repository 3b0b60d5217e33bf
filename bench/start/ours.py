"""A small bounded job with Headrace: mean per sensor over sliding windows."""

import sys

from bench.start.stamps import stamp, watch_spark

stamp("python")
import headrace as hr  # noqa: E402

stamp("import")


def main(source: str, target: str) -> None:
    watch_spark()
    job = hr.Job("start")
    schema = "sensor string, at timestamp, celsius double"
    readings = job.read(f"files:{source}", schema=schema, time="at", delay="2s")
    means = (
        readings.key_by("sensor")
        .window(hr.sliding("60s", every="5s"))
        .agg(celsius=hr.mean("celsius"))
    )
    means.write(f"files:{target}/out", format="parquet", name="means")
    stamp("program")
    run = hr.run(
        job, folder=f"{target}/job", until="end", on_progress=lambda progress: stamp("batch")
    )
    stamp("query")
    run.wait()
    stamp("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
