"""The compiled loop: two raw deflate streams -> their bytes (RFC 1951).

A decoder waits: where the next code begins is known only when the last one was looked up. So two streams take turns,
each using the other's waiting time, and a look-up gives two literals where their codes are short. A symbol that is no
literal takes no bits in the table: the look-ups after it find it again and add nothing, so that five of them need one
question. What is written or read beyond the end by such look-ups lies in the room that each array has there.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from segmeter.data.files.deflate import ROOM
from segmeter.data.files.deflate._tables import (
    LENGTH_AT,
    MOST_BITS,
    SYMBOL,
    SYMBOL_AT,
    build_codes,
    find_code,
    pair_literals,
)
from segmeter.jit import inlined_part, kernel

Array = NDArray[Any]

OPENING, RUNNING, DONE, FAILED, UNSUITED = (np.uint64(k) for k in range(5))
_BUFFER, _HELD, _AT, _GOAL, _STATUS, _IS_LAST, _MOST = range(7)  # places of a state
_TABLE_BITS, _DISTANCE_BITS = 11, 8
_DISTANCE_AT = 2**_TABLE_BITS  # places in a table
_CODES_AT = _DISTANCE_AT + 2**_DISTANCE_BITS
_DISTANCE_CODES_AT = _CODES_AT + 16 + 288
_TABLE_END = _DISTANCE_CODES_AT + 16 + 32
_TURNS = 5  # look-ups of 11 bits in the 56 that are there
_MASK, _DISTANCE_MASK = np.uint64(2**_TABLE_BITS - 1), np.uint64(2**_DISTANCE_BITS - 1)
_ONE, _SEVEN, _EIGHT, _FIVE_BITS, _FULL, _WORD, _BYTE = (np.uint64(n) for n in (1, 7, 8, 31, 56, 63, 255))
_END, _FIRST_LENGTH, _LENGTHS, _DISTANCES = (np.uint64(n) for n in (256, 257, 29, 30))
_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)  # of the lengths of lengths


def _ranges(first: int, extra: list[int]) -> Array:
    """(2, N): the first value of each symbol, and how many bits are added to it."""
    starts = first + np.cumsum([0, *(2**bits for bits in extra[:-1])])
    return np.array([starts, extra], np.uint64)


_LENGTH_OF = _ranges(3, [0] * 8 + [n for n in range(1, 6) for _ in range(4)] + [0])
_LENGTH_OF[0, 28] = 258
_DISTANCE_OF = _ranges(1, [0] * 4 + [n for n in range(1, 14) for _ in range(2)])


class Stream(NamedTuple):
    """A stream that is being decoded.

    Parameters
    ----------
    packed : (N + ROOM,) uint8
        The stream.
    rows : (size + ROOM,) uint8
        Filled with its bytes.
    state : (7,) uint64
        Bits that were read and not used, how many; the next place in `packed` and in `rows`; the status; whether this
        block is the last one; and the largest share of symbols that repeat earlier bytes, in 2**15ths.
    table : (2672,) uint32
        Of pairs of literals by the next 11 bits; then of distances by the next 8; then the codes of either.
    single : (2048,) uint32
        Of one symbol each.
    lengths : (320,) uint8
        Of the codes of this block.
    """

    packed: Array
    rows: Array
    state: Array
    table: Array
    single: Array
    lengths: Array


@kernel
def new_stream(packed: Array, rows: Array, most_repeats: float) -> Stream:
    """A stream at its start; a block that has more repeats, by its own codes, or is stored as it is, is unsuited."""
    state = np.zeros(_MOST + 1, np.uint64)
    state[_STATUS], state[_MOST] = OPENING, np.uint64(2**MOST_BITS * most_repeats)
    table, single = np.zeros(_TABLE_END, np.uint32), np.empty(2**_TABLE_BITS, np.uint32)
    return Stream(packed, rows, state, table, single, np.empty(320, np.uint8))


@kernel
def is_done(stream: Stream) -> bool:
    """Whether a stream came to its end in order."""
    return bool(stream.state[_STATUS] == DONE)


@kernel
def used_bytes(stream: Stream) -> tuple[Any, Any]:
    """How many bytes of a stream were read, and how many were written."""
    held, at, goal = np.int64(stream.state[_HELD]), np.int64(stream.state[_AT]), np.int64(stream.state[_GOAL])
    return at - held // 8, goal


@kernel
def inflate_both(first: Stream, second: Stream) -> None:
    """Decode both until their status is `DONE`, or that of one is `FAILED` or `UNSUITED`."""
    while True:
        for stream in (first, second):
            if stream.state[_STATUS] == OPENING:
                _open_block(stream)
        statuses = first.state[_STATUS], second.state[_STATUS]
        if max(statuses) > DONE or statuses == (DONE, DONE):
            return
        _run(first, second)


@kernel
def _run(first: Stream, second: Stream) -> None:
    """Decode both until a block of either ends, or one runs over its end."""
    packed, rows, table = first.packed, first.rows, first.table  # once, as each look into a tuple counts a reference
    packed_2, rows_2, table_2 = second.packed, second.rows, second.table
    buffer, held, at, goal, status = _load(first.state)
    buffer_2, held_2, at_2, goal_2, status_2 = _load(second.state)
    last, last_2 = _end(packed) + _EIGHT, _end(packed_2) + _EIGHT  # words that were read and not used
    size, size_2 = _end(rows), _end(rows_2)
    while at <= last and at_2 <= last_2 and goal <= size and goal_2 <= size_2:
        buffer, held, at = _refill(packed, buffer, held, at)
        buffer_2, held_2, at_2 = _refill(packed_2, buffer_2, held_2, at_2)
        entry, entry_2, total, total_2 = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
        for _ in range(_TURNS):
            entry, buffer, total = _look_up(table, rows, buffer, goal, total)
            entry_2, buffer_2, total_2 = _look_up(table_2, rows_2, buffer_2, goal_2, total_2)
        held, goal = held - (total & _WORD), goal + _written(total)
        held_2, goal_2 = held_2 - (total_2 & _WORD), goal_2 + _written(total_2)
        if not entry & _WORD and status == RUNNING:
            buffer, held, at, goal, status = _take(packed, rows, table, entry, buffer, held, at, goal)
            if status != RUNNING:
                break
        if not entry_2 & _WORD and status_2 == RUNNING:
            stream = _take(packed_2, rows_2, table_2, entry_2, buffer_2, held_2, at_2, goal_2)
            buffer_2, held_2, at_2, goal_2, status_2 = stream
            if status_2 != RUNNING:
                break
    _store(first, buffer, held, at, goal, status)
    _store(second, buffer_2, held_2, at_2, goal_2, status_2)


@inlined_part
def _load(state: Any) -> Any:
    return state[_BUFFER], state[_HELD], state[_AT], state[_GOAL], state[_STATUS]


@kernel
def _store(stream: Stream, buffer: Any, held: Any, at: Any, goal: Any, status: Any) -> None:
    """Keep what is known of a stream; one that has run over an end has failed, and one that ended stands still."""
    if at > _end(stream.packed) + _EIGHT or goal > _end(stream.rows):
        status = FAILED
    if status != RUNNING:
        for i in range(_DISTANCE_AT):
            stream.table[i] = 0
    state = stream.state
    state[_BUFFER], state[_HELD], state[_AT], state[_GOAL], state[_STATUS] = buffer, held, at, goal, status


@inlined_part
def _end(array: Any) -> Any:
    return np.uint64(array.size - ROOM)


@inlined_part
def _refill(packed: Any, buffer: Any, held: Any, at: Any) -> Any:
    """At least 56 bits; those above `held` are the ones that follow, and are read again."""
    word = np.uint64(packed[at])
    for k in range(1, 8):
        word |= np.uint64(packed[at + np.uint64(k)]) << np.uint64(8 * k)
    return buffer | (word << held), held | _FULL, at + ((_WORD - held) >> np.uint64(3))


@inlined_part
def _look_up(table: Any, rows: Any, buffer: Any, goal: Any, total: Any) -> Any:
    """Write up to two literals, and pass them in the stream; `total` adds up the entries of some turns."""
    entry = np.uint64(table[buffer & _MASK])
    goal += _written(total)
    rows[goal] = (entry >> np.uint64(16)) & _BYTE
    rows[goal + _ONE] = (entry >> np.uint64(24)) & _BYTE
    return entry, buffer >> (entry & _WORD), total + entry


@inlined_part
def _written(total: Any) -> Any:
    return (total >> _EIGHT) & _BYTE


@inlined_part
def _take(packed: Array, rows: Array, table: Array, entry: Any, buffer: Any, held: Any, at: Any, goal: Any) -> Any:
    """Decode one symbol of any kind: its entry, and where the stream is."""
    buffer, held, at = _refill(packed, buffer, held, at)
    symbol, bits = (entry >> SYMBOL_AT) & SYMBOL, entry >> LENGTH_AT
    if not bits:
        symbol, bits = find_code(table, np.int64(_CODES_AT), buffer)
    buffer, held = buffer >> bits, held - bits
    if not bits or symbol >= _FIRST_LENGTH + _LENGTHS:
        return buffer, held, at, goal, FAILED
    if symbol == _END:
        return buffer, held, at, goal, OPENING
    if symbol < _END:
        rows[goal] = symbol
        return buffer, held, at, goal + _ONE, RUNNING
    count, bits = _value(_LENGTH_OF, symbol - _FIRST_LENGTH, buffer)
    buffer, held = buffer >> bits, held - bits
    symbol, bits = _distance_symbol(table, buffer)
    if not bits or symbol >= _DISTANCES:
        return buffer, held, at, goal, FAILED
    buffer, held = buffer >> bits, held - bits
    distance, bits = _value(_DISTANCE_OF, symbol, buffer)
    if distance > goal or goal + count > _end(rows):
        return buffer, held, at, goal, FAILED
    for k in range(goal, goal + count):
        rows[k] = rows[k - distance]
    return buffer >> bits, held - bits, at, goal + count, RUNNING


@inlined_part
def _distance_symbol(table: Any, buffer: Any) -> Any:
    """The symbol of the distance that comes next, and the bits of its code; 0 bits where it is none."""
    entry = np.uint64(table[np.uint64(_DISTANCE_AT) + (buffer & _DISTANCE_MASK)])
    symbol, bits = (entry >> SYMBOL_AT) & SYMBOL, entry >> LENGTH_AT
    if not bits:
        symbol, bits = find_code(table, np.int64(_DISTANCE_CODES_AT), buffer)
    return symbol, bits


@inlined_part
def _value(ranges: Any, symbol: Any, buffer: Any) -> Any:
    """The value of a length or distance, and how many bits it adds to the symbol."""
    bits = ranges[1, symbol]
    return ranges[0, symbol] + (buffer & ((_ONE << bits) - _ONE)), bits


@kernel
def _open_block(stream: Stream) -> None:
    """Read the codes of the next block, if there is one."""
    buffer, held, at, goal, status = _load(stream.state)
    if stream.state[_IS_LAST]:
        status = DONE
    else:
        buffer, held, at = _refill(stream.packed, buffer, held, at)
        stream.state[_IS_LAST] = buffer & _ONE
        kind = (buffer >> _ONE) & np.uint64(3)
        buffer, held = buffer >> np.uint64(3), held - np.uint64(3)
        if kind == 2:
            buffer, held, at, status = _read_codes(stream, buffer, held, at)
        elif kind == 1:
            _fix_lengths(stream.lengths)
            status = _build(stream, np.int64(288), np.int64(320))
        else:
            status = FAILED if kind == 3 else UNSUITED
    _store(stream, buffer, held, at, goal, status)


@kernel
def _fix_lengths(lengths: Array) -> None:
    """The lengths of the codes that need no description, as the last block has where it is small."""
    for k in range(lengths.size):
        lengths[k] = 8 if k < 144 or 280 <= k < 288 else 9 if k < 256 else 7 if k < 280 else 5


@kernel
def _build(stream: Stream, literals: Any, end: Any) -> Any:
    """Fill the tables from the lengths of the codes: those of literals and lengths, then those of distances."""
    lengths, table = stream.lengths, stream.table
    repeats = np.uint64(0)
    for symbol in range(257, literals):
        if lengths[symbol]:
            repeats += _ONE << np.uint64(MOST_BITS - lengths[symbol])
    if not lengths[_END] or not build_codes(lengths[:literals], table[_CODES_AT:_DISTANCE_CODES_AT], stream.single):
        return FAILED
    if not _build_distances(lengths[literals:end], table):
        return FAILED
    pair_literals(stream.single, table[:_DISTANCE_AT])
    return RUNNING if repeats <= stream.state[_MOST] or end == lengths.size else UNSUITED


@kernel
def _build_distances(lengths: Array, table: Array) -> bool:
    return build_codes(lengths, table[_DISTANCE_CODES_AT:], table[_DISTANCE_AT:_CODES_AT])


@kernel
def _read_codes(stream: Stream, buffer: Any, held: Any, at: Any) -> Any:
    """Read the codes of a block: the lengths of the lengths' codes, then all lengths."""
    literals, end = np.int64(buffer & _FIVE_BITS) + 257, np.int64((buffer >> np.uint64(5)) & _FIVE_BITS) + 1
    count = np.int64((buffer >> np.uint64(10)) & np.uint64(15)) + 4
    buffer, held = buffer >> np.uint64(14), held - np.uint64(14)
    if literals > 286 or end > 30:
        return buffer, held, at, FAILED
    end += literals
    lengths, small = stream.lengths, np.zeros(19, np.uint8)
    for place in range(count):
        buffer, held, at = _refill(stream.packed, buffer, held, at)
        small[_ORDER[place]] = buffer & _SEVEN
        buffer, held = buffer >> np.uint64(3), held - np.uint64(3)
    if not _build_distances(small, stream.table):
        return buffer, held, at, FAILED
    k: Any = np.int64(0)
    while k < end:
        buffer, held, at = _refill(stream.packed, buffer, held, at)
        symbol, bits = _distance_symbol(stream.table, buffer)
        buffer, held, known = buffer >> bits, held - bits, bits
        times, value, bits = _repeat(np.int64(symbol), buffer, lengths, k)
        buffer, held = buffer >> bits, held - bits
        if not (known and times) or k + times > end or at > _end(stream.packed) + _EIGHT:
            return buffer, held, at, FAILED
        for _ in range(times):
            lengths[k] = value
            k += 1
    return buffer, held, at, _build(stream, literals, end)


@kernel
def _repeat(symbol: Any, buffer: Any, lengths: Array, k: Any) -> Any:
    """How often a length comes, which one, and the bits that say so; 0 times where there is none to repeat."""
    if symbol < 16:
        return 1, symbol, np.uint64(0)
    if symbol == 16:
        return 3 + np.int64(buffer & np.uint64(3)) if k else 0, np.int64(lengths[k - 1]), np.uint64(2)
    if symbol == 17:
        return 3 + np.int64(buffer & _SEVEN), 0, np.uint64(3)
    return 11 + np.int64(buffer & np.uint64(127)), 0, np.uint64(7)
