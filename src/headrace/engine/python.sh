#!/bin/sh
# Starts the interpreter of the driver for Spark's Python processes. Spark puts its own
# zipped PySpark first on the path, which has no compiled modules and makes every start
# slow; the installed package is the same code, so the zips are left out.
rest=""
old_ifs=$IFS
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        */pyspark.zip | */py4j-*-src.zip) ;;
        *) rest="${rest:+$rest:}$entry" ;;
    esac
done
IFS=$old_ifs
PYTHONPATH=$rest
export PYTHONPATH
exec "$HEADRACE_PYTHON" "$@"
