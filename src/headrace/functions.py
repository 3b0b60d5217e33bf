"""Scalar functions: every name that expressions may call, as a Python function.

    from headrace import functions as f
    f.upper("area"), f.round(col("celsius"), 1), f.when("celsius > 40", "hot").otherwise("ok")

The same names work inside SQL text. A text where a column is expected is the column's name.
`log` is here alone: `headrace.log` is the package of the log itself.
A function is declared in `headrace.expr.*_functions`, and public when its name is listed here.
"""

from headrace.expr.array_functions import *  # noqa: F403
from headrace.expr.lambda_functions import *  # noqa: F403
from headrace.expr.number_functions import *  # noqa: F403
from headrace.expr.pattern_functions import *  # noqa: F403
from headrace.expr.rounding_functions import *  # noqa: F403
from headrace.expr.text_functions import *  # noqa: F403
from headrace.expr.time_functions import *  # noqa: F403
from headrace.expr.time_text_functions import *  # noqa: F403

__all__ = [  # noqa: F405
    "abs", "acos", "add_months", "aggregate", "array", "array_append", "array_concat",
    "array_contains", "array_distinct", "array_join", "array_max", "array_min",
    "array_position", "array_remove", "array_reverse", "array_sort", "array_union", "ascii",
    "asin", "atan", "atan2", "base64", "bin", "bit_count", "ceil", "coalesce", "concat",
    "concat_ws", "contains", "cos", "current_date", "date_add", "date_diff", "date_format",
    "date_from_unix_date", "date_part", "date_sub", "date_trunc", "dayofmonth", "dayofweek",
    "dayofyear", "degrees", "element_at", "ends_with", "exists", "exp", "filter", "floor",
    "floor_div", "floor_mod", "forall", "from_unixtime", "from_utc_timestamp", "get",
    "get_json_object", "greatest", "hex", "hour", "ilike", "initcap", "instr", "is_nan",
    "json_array_length", "json_bool", "json_double", "json_long", "json_object_keys",
    "json_text", "last_day", "least", "left", "length", "like", "ln", "locate", "log2", "log10",
    "lower", "lpad", "ltrim", "make_date", "make_timestamp", "map_keys", "map_size",
    "map_values", "md5", "minute", "mod", "month", "nanvl", "nullif", "nvl2", "octet_length",
    "pmod", "pow", "quarter", "radians", "regexp_count", "regexp_extract", "regexp_replace",
    "repeat", "replace", "reverse", "right", "rlike", "round", "rpad", "rtrim", "second",
    "sha1", "sha2", "sha256", "shiftleft", "shiftright", "shiftrightunsigned", "sign", "sin",
    "size", "slice", "split", "split_part", "sqrt", "starts_with", "struct", "substring", "tan",
    "timestamp_diff", "timestamp_micros", "timestamp_millis", "timestamp_seconds", "to_date",
    "to_timestamp", "to_utc_timestamp", "transform", "translate", "trim", "trunc", "unix_date",
    "unix_micros", "unix_millis", "unix_seconds", "unix_timestamp", "upper", "weekday",
    "weekofyear", "when", "year", "zip_with",
]  # fmt: skip
