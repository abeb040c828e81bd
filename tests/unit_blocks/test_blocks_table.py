"""The hash table of whole arrays must do what a dictionary does."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.hash_table import HashTable

# Few numbers, so that they collide and come back; and some at the ends of the range.
NUMBERS = st.one_of(st.integers(0, 40), st.sampled_from([2**63, 2**64 - 1, 2**64 - 2, 2**32]))
STEPS = st.lists(st.tuples(st.booleans(), st.sets(NUMBERS, max_size=30)), max_size=40)


@settings(deadline=None)
@given(STEPS)
def test_any_order_of_calls_is_what_a_dictionary_holds(steps: list[tuple[bool, set[int]]]) -> None:
    table, expected, fresh = HashTable(), dict[int, int](), 0
    for inserts, numbers in steps:
        chosen = [number for number in numbers if (number in expected) is not inserts]
        keys = np.array(chosen, np.uint64)
        if inserts:
            values = np.arange(fresh, fresh + len(chosen), dtype=np.int32)
            fresh += len(chosen)
            table.insert(keys, values)
            expected.update(zip(chosen, values.tolist(), strict=True))
        else:
            table.remove(keys)
            for number in chosen:
                del expected[number]
        asked = np.array(sorted(numbers | set(expected)), np.uint64)
        wanted = [expected.get(number, -1) for number in asked.tolist()]
        assert table.find(asked).tolist() == wanted
        assert [table.get(number) for number in asked.tolist()] == wanted
        keys, values = table.items()
        assert dict(zip(keys.tolist(), values.tolist(), strict=True)) == expected
        assert len(table) == len(expected)


def test_steady_churn_neither_grows_nor_clogs_it() -> None:
    table = HashTable()
    keys = np.arange(200_000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    table.insert(keys[:1000], np.arange(1000, dtype=np.int32))
    for start in range(1000, 200_000, 1000):
        table.remove(keys[start - 1000 : start])
        table.insert(keys[start : start + 1000], np.arange(1000, dtype=np.int32))
    assert len(table) == 1000
    # Three places of twelve bytes an entry, twice over at most while it is rebuilt.
    assert table.bytes <= 2 * 3 * 12 * 2000
