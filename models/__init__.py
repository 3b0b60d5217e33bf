"""Every operator over millions of rows on real Spark, against DuckDB: make models LARGE=1."""
