"""Who reads what: drawn groups, against what the words of the guide say."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.assignment import assign
from headrace.log.clients import TopicPartition

TOPICS = ["a", "b", "c"]
members = st.dictionaries(
    st.sampled_from("uvwxyz"), st.sets(st.sampled_from(TOPICS), min_size=1), max_size=5
)
partitions = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 6))


@given(members, partitions, st.data())
def test_every_partition_that_anybody_reads_has_one_of_its_readers(who, counts, data):
    places = [TopicPartition(t, p) for t, n in counts.items() for p in range(n)]
    current = data.draw(st.dictionaries(st.sampled_from(places), st.sampled_from("uvwxyz"))
                        if places else st.just({}))  # fmt: skip

    chosen = assign(who, counts, current)

    for place in places:
        readers = {m for m, topics in who.items() if place.topic in topics}
        assert (place in chosen) == bool(readers)
        assert not readers or chosen[place] in readers


@given(st.lists(members, min_size=1, max_size=3), partitions)
def test_nobody_has_two_more_than_another_that_could_read_them(generations, counts):
    chosen = {}
    for who in generations:
        chosen = assign(who, counts, chosen)
        load = Counter({m: 0 for m in who} | Counter(chosen.values()))
        for place, holder in chosen.items():
            could = [m for m, topics in who.items() if place.topic in topics]
            assert load[holder] - min(load[m] for m in could) <= 1


@given(st.integers(1, 6), st.integers(1, 20), st.data())
def test_equal_members_differ_by_one_at_most_and_moves_are_few(n, count, data):
    names = [f"m{i}" for i in range(n)]
    before = assign({m: {"t"} for m in names}, {"t": count}, {})
    leaver = data.draw(st.sampled_from(names))
    left = {m: {"t"} for m in names if m != leaver}

    after = assign(left, {"t": count}, before)
    joined = assign({m: {"t"} for m in [*left, "new"]}, {"t": count}, after)

    for chosen, members in ((before, names), (after, left), (joined, [*left, "new"])):
        load = Counter(chosen.values())
        assert not members or max(load[m] for m in members) - min(load[m] for m in members) <= 1
    assert all(after[p] == m for p, m in before.items() if m != leaver)  # nothing moved needlessly
    assert all(joined[p] in (m, "new") for p, m in after.items())
