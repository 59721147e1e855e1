"""Lengths of Huffman codes -> tables that say what the next bits of a stream are (RFC 1951, section 3.2.2).

An entry of a table is of literals, or of one symbol. That of literals holds in bits 0 to 5 how many bits their codes
take together, from bit 8 how many they are, 1 or 2, and the literals themselves in bits 16 to 23 and 24 to 31. That of
a symbol is 0 in its lower 16 bits, so that it takes no bits and writes nothing; it holds the symbol in bits 16 to 24
and the length of its code from bit 25. An entry of 0 is a code that is longer than the table's index, or none at all.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmeter.jit import kernel

Array = NDArray[Any]

MOST_BITS = 15  # of a code
SYMBOL_AT, LENGTH_AT, SYMBOL = np.uint32(16), np.uint32(25), np.uint32(511)
_COUNT_AT, _SECOND_AT = np.uint32(8), np.uint32(24)
_LITERALS = np.uint32(256)
_ONE, _TWO = np.uint32(1), np.uint32(2)


@kernel
def build_codes(lengths: Array, codes: Array, table: Array) -> bool:
    """Fill a table, and the list of codes for those that are longer than its index.

    Parameters
    ----------
    lengths : (N,) uint8
        Bits of each symbol's code, 0 for none.
    codes : (16 + N,) uint32
        Filled: how many codes have 0 to 15 bits, then the symbols in the order of their codes.
    table : (2**bits,) uint32
        Filled; each entry has its symbol and the length of its code, and no literals.

    Returns
    -------
    bool
        False where there are more codes than bits can tell apart, or fewer: but one code of one bit may stand alone,
        and no code at all is an empty table, as in zlib.
    """
    for length in range(MOST_BITS + 1):
        codes[length] = 0
    for symbol in range(lengths.size):
        codes[lengths[symbol]] += 1
    following = np.zeros(MOST_BITS + 2, np.int64)  # the next place among the symbols
    left, most = 1, 0
    for length in range(1, MOST_BITS + 1):
        following[length + 1] = following[length] + codes[length]
        left = 2 * left - codes[length]
        if left < 0:
            return False
        if codes[length]:
            most = length
    for i in range(table.size):
        table[i] = 0
    if left and most > 1:
        return False
    for symbol in range(lengths.size):
        if lengths[symbol]:
            codes[MOST_BITS + 1 + following[lengths[symbol]]] = symbol
            following[lengths[symbol]] += 1
    _fill(codes, table)
    return True


@kernel
def _fill(codes: Array, table: Array) -> None:
    """Enter every code that is no longer than the index, at all indices that begin with it, lowest bit first."""
    code, place, step = 0, MOST_BITS + 1, 1
    for length in range(1, MOST_BITS + 1):
        step *= 2
        if step > table.size:
            return
        for _ in range(codes[length]):
            start = 0
            for bit in range(length):
                start |= ((code >> bit) & 1) << (length - 1 - bit)
            entry = (np.uint32(codes[place]) << SYMBOL_AT) | (np.uint32(length) << LENGTH_AT)
            for i in range(start, table.size, step):
                table[i] = entry
            code += 1
            place += 1
        code *= 2


@kernel
def pair_literals(single: Array, table: Array) -> None:
    """Fill a table with entries of one literal, of two where both codes fit in the index, or of another symbol."""
    bits = np.uint32(np.log2(table.size))
    for i in range(table.size):
        one = single[i]
        first = one >> LENGTH_AT
        two = single[i >> np.int64(first)]
        both = first + (two >> LENGTH_AT)
        symbol, second = (one >> SYMBOL_AT) & SYMBOL, (two >> SYMBOL_AT) & SYMBOL
        entry = one
        if one and symbol < _LITERALS:
            if two and second < _LITERALS and both <= bits:
                entry = both | (_TWO << _COUNT_AT) | (symbol << SYMBOL_AT) | (second << _SECOND_AT)
            else:
                entry = first | (_ONE << _COUNT_AT) | (symbol << SYMBOL_AT)
        table[i] = entry


@kernel
def find_code(table: Array, start: Any, buffer: Any) -> tuple[Any, Any]:
    """Symbol and length of the code that the lowest bits begin with, by the list at `start`; length 0 if none does."""
    code: Any = 0
    first: Any = 0
    place = start + MOST_BITS + 1
    for length in range(1, MOST_BITS + 1):
        code |= np.int64(buffer & np.uint64(1))
        buffer >>= np.uint64(1)
        count = np.int64(table[start + length])
        if code < first + count:
            return np.uint64(table[place + code - first]), np.uint64(length)
        place += count
        first = 2 * (first + count)
        code *= 2
    return np.uint64(0), np.uint64(0)
