#!/bin/sh
# What Spark starts as its Python. With a zygote at hand a fork of it becomes the process;
# else the driver's own interpreter starts. Spark puts its zipped PySpark first on the path,
# which has no compiled modules and makes every start slow; the installed package is the same
# code, so the zips are left out.
if [ "$1" = "-m" ] && [ -S "$HEADRACE_ZYGOTE" ]; then
    exec "$HEADRACE_PYTHON" -S -E "$(dirname "$0")/launch.py" "$@"
fi
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
