import pyarrow as pa

from headrace.chunk import HIDDEN, hidden_columns, visible


def test_visible_and_hidden_columns_are_two_halves_of_a_chunk():
    names = ["__t", "a", "__s", "_b", "__o", "__h"]
    chunk = pa.table({n: pa.array([1], HIDDEN.get(n, pa.int64())) for n in names})
    assert visible(chunk).column_names == ["a", "_b"]
    assert hidden_columns(chunk) == ["__t", "__s", "__o", "__h"]
