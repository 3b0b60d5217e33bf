"""The same small job, written by hand for Structured Streaming."""

import sys

from bench.start.stamps import stamp, watch_spark

stamp("python")
from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402

stamp("import")


def main(source: str, target: str) -> None:
    watch_spark()
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    readings = spark.readStream.schema("sensor string, at timestamp, celsius double").parquet(
        source
    )
    means = (
        readings.withWatermark("at", "2 seconds")
        .groupBy("sensor", F.window("at", "60 seconds", "5 seconds"))
        .agg(F.mean("celsius").alias("celsius"))
    )
    stamp("program")
    query = (
        means.writeStream.format("parquet")
        .option("path", f"{target}/out")
        .option("checkpointLocation", f"{target}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    stamp("query")
    query.awaitTermination()
    stamp("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
