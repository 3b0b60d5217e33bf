"""An epoch as values: what the driver decides, what tasks send each other and report back.

Imports no Spark and does no work of its own: the other rooms decide (`driver/`), do (`task/`)
and show (`inspect/`).
"""
