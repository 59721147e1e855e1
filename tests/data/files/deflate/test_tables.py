"""Tables of Huffman codes by hand: the example of RFC 1951, section 3.2.2."""

import numpy as np
import pytest

from segmeter.data.files.deflate._tables import build_codes, find_code, pair_literals

LENGTHS = [3, 3, 3, 3, 3, 2, 4, 4]  # of A to H
CODES = {"A": "010", "B": "011", "C": "100", "D": "101", "E": "110", "F": "00", "G": "1110", "H": "1111"}


def build(lengths: list[int], bits: int) -> tuple[bool, np.ndarray, np.ndarray]:
    codes, table = np.zeros(16 + len(lengths), np.uint32), np.empty(2**bits, np.uint32)
    return build_codes(np.array(lengths, np.uint8), codes, table), codes, table


def as_index(code: str) -> int:
    """A code whose first bit is the lowest, as they come in a stream."""
    return int(code[::-1], 2)


def test_each_code_of_the_example_is_found_in_the_table_or_by_the_list():
    done, codes, table = build(LENGTHS, 3)
    assert done
    for symbol, (name, code) in enumerate(CODES.items()):
        assert tuple(map(int, find_code(codes, 0, np.uint64(as_index(code + "0110"))))) == (symbol, len(code)), name
        entry = int(table[as_index(code) & 7])
        assert entry == (symbol << 16 | len(code) << 25 if len(code) <= 3 else 0), name


def test_an_entry_holds_two_literals_where_both_codes_fit():
    _, _, single = build(LENGTHS, 5)
    table = np.empty(32, np.uint32)
    pair_literals(single, table)
    assert table[as_index("00" + "010")] == 5 | 2 << 8 | 5 << 16 | 0 << 24  # F, A
    assert table[as_index("010" + "00")] == 5 | 2 << 8 | 0 << 16 | 5 << 24  # A, F
    assert table[as_index("010" + "01")] == 3 | 1 << 8 | 0 << 16  # A, and A or B
    assert table[as_index("1110" + "0")] == 4 | 1 << 8 | 6 << 16  # G


def test_a_symbol_that_is_no_literal_takes_no_bits_and_ends_a_pair():
    """Symbol 256 has the code 1, the literal 7 the code 0."""
    lengths = [0] * 257
    lengths[7] = lengths[256] = 1
    _, _, single = build(lengths, 3)
    table = np.empty(8, np.uint32)
    pair_literals(single, table)
    assert table[as_index("100")] == 256 << 16 | 1 << 25
    assert table[as_index("010")] == 1 | 1 << 8 | 7 << 16
    assert table[as_index("001")] == 2 | 2 << 8 | 7 << 16 | 7 << 24


@pytest.mark.parametrize(
    ("lengths", "valid"),
    [([1, 1, 1], False), ([1, 2], False), ([2, 2, 2], False), ([1, 2, 2], True), ([1], True), ([0, 0], True)],
    ids=str,
)
def test_codes_that_are_too_many_or_too_few_are_refused_as_zlib_does(lengths, valid):
    assert build(lengths, 4)[0] == valid


def test_bits_that_begin_no_code_have_a_length_of_0():
    _, codes, table = build([1], 2)
    assert table.tolist() == [1 << 25, 0, 1 << 25, 0]
    assert find_code(codes, 0, np.uint64(1))[1] == 0
