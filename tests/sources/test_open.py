"""URIs of inputs."""

from __future__ import annotations

import pytest
from tests.sources.reading import refusal

from headrace.schema import schema_of
from headrace.sources import open_source
from headrace.sources.place import safe


@pytest.mark.parametrize("uri", ["", "events.json", "s3:x", "Files:x", "files", "log"])
def test_what_is_no_input_is_refused_with_the_known_ones(uri):
    error = refusal(open_source, uri, schema_of("a bigint"))

    assert error.code == "HR-INPUT-001" and "files" in str(error.hint)


def test_a_path_is_needed():
    assert refusal(open_source, "files:", schema_of("a bigint")).code == "HR-INPUT-001"


def test_names_stay_different_and_in_their_folder():
    names = ["", "a", "A", "a/b", "a%2Fb", "..", ".", "../x", "_x", "%5Fx", " ", "%20", "~", "é"]
    made = [safe(n) for n in names]

    assert len(set(made)) == len(names)
    assert all("/" not in m and m and m[0] not in "._ ~" for m in made)
