"""The arithmetic of the numba backend: float32 exp and log that vectorise, and rows that are read and written.

numba's own exp and log call a scalar function per element; these are polynomials that LLVM turns into vector code, with
the coefficients of Cephes' expf and logf (S. Moshier); the tests say how near they are.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from segmeter.jit import fused_part


def _pointer_to(scalar: Any) -> Any:
    """Make a function that turns an address into a pointer: torch's memory is used where it lies."""

    @intrinsic  # type: ignore[untyped-decorator]
    def pointer(_: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(scalar)(types.int64), generate

    return pointer


float32_at = _pointer_to(types.float32)
float64_at = _pointer_to(types.float64)
uint16_at = _pointer_to(types.uint16)
uint8_at = _pointer_to(types.uint8)
int16_at = _pointer_to(types.int16)
int32_at = _pointer_to(types.int32)
int64_at = _pointer_to(types.int64)


@intrinsic  # type: ignore[untyped-decorator]
def bits_of(_: Any, value: Any) -> Any:
    """float32 -> the int32 with the same bits."""
    return types.int32(types.float32), lambda _, builder, __, given: builder.bitcast(given[0], ir.IntType(32))


@intrinsic  # type: ignore[untyped-decorator]
def float_of(_: Any, bits: Any) -> Any:
    """int32 -> the float32 with the same bits."""
    return types.float32(types.int32), lambda _, builder, __, given: builder.bitcast(given[0], ir.FloatType())


# numba widens a bare Python number to 64 bits, which would halve the vectors.
f32, i32 = np.float32, np.int32
ZERO, HALF, ONE = f32(0), f32(0.5), f32(1)
LARGEST = np.finfo(np.float32).max
LOG2E, LN2_HIGH, LN2_LOW = f32(1.4426950408889634), f32(0.693359375), f32(-2.12194440e-4)
ROUNDER = f32(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer, which then lies in the low bits
ROUNDER_BITS = i32(0x4B400000 - 127)
LEAST_EXP = f32(-87.3)  # below it exp is under the smallest normal float32 and is 0
SQRT_HALF = i32(0x3F3504F3)
MANTISSA, BFLOAT, ODD, BFLOAT_HALF = i32(23), i32(16), i32(1), i32(0x7FFF)
E0, E1, E2 = f32(1.9875691500e-4), f32(1.3981999507e-3), f32(8.3334519073e-3)
E3, E4, E5 = f32(4.1665795894e-2), f32(1.6666665459e-1), f32(5.0000001201e-1)
L0, L1, L2 = f32(7.0376836292e-2), f32(-1.1514610310e-1), f32(1.1676998740e-1)
L3, L4, L5 = f32(-1.2420140846e-1), f32(1.4249322787e-1), f32(-1.6668057665e-1)
L6, L7, L8 = f32(2.0000714765e-1), f32(-2.4999993993e-1), f32(3.3333331174e-1)
# log1p(x) / x on [0, 1]: a Chebyshev fit in float64, rounded to float32.
U1, U2, U3 = f32(-0.4999990463256836), f32(0.33330005407333374), f32(-0.24954558908939362)
U4, U5, U6 = f32(0.19678117334842682), f32(-0.15311862528324127), f32(0.10614264756441116)
U7, U8, U9 = f32(-0.057064201682806015), f32(0.019907161593437195), f32(-0.003256378462538123)


@fused_part
def exp(x: Any) -> Any:
    """e^x for x <= 0; NaN stays NaN."""
    rounded = x * LOG2E + ROUNDER
    n = rounded - ROUNDER
    r = x - n * LN2_HIGH - n * LN2_LOW
    tail = ((((E0 * r + E1) * r + E2) * r + E3) * r + E4) * r + E5
    scale = float_of((bits_of(rounded) - ROUNDER_BITS) << MANTISSA)
    return ZERO if x < LEAST_EXP else (tail * r * r + r + ONE) * scale


@fused_part
def log(x: Any) -> Any:
    """Ln x for a normal x > 0."""
    bits = bits_of(x)
    exponent = (bits - SQRT_HALF) >> MANTISSA
    f = float_of(bits - (exponent << MANTISSA)) - ONE
    tail = (((L0 * f + L1) * f + L2) * f + L3) * f + L4
    tail = (((tail * f + L5) * f + L6) * f + L7) * f + L8
    square = f * f
    n = f32(exponent)
    return f + (tail * f * square + n * LN2_LOW - HALF * square) + n * LN2_HIGH


@fused_part
def log1p(x: Any) -> Any:
    """ln(1 + x) for x >= 0, with what 1 + x rounds away put back."""
    whole = ONE + x
    return log(whole) + (x - (whole - ONE)) / whole


@fused_part
def log1p_unit(x: Any) -> Any:
    """ln(1 + x) for 0 <= x <= 1, in a third of the operations of `log1p`."""
    tail = (((U9 * x + U8) * x + U7) * x + U6) * x + U5
    tail = (((tail * x + U4) * x + U3) * x + U2) * x + U1
    return x * (tail * x + ONE)


@fused_part
def power(base: Any, gamma: Any, count: Any, out: Any) -> None:
    """Out = base^gamma for 0 <= base <= 1, by multiplication where gamma is 0, 1, 2 or 3; 0^0 = 1."""
    if gamma == ZERO:
        for p in range(count):
            out[p] = ONE
    elif gamma == ONE:
        for p in range(count):
            out[p] = base[p]
    elif gamma == f32(2):
        for p in range(count):
            out[p] = base[p] * base[p]
    elif gamma == f32(3):
        for p in range(count):
            out[p] = base[p] * base[p] * base[p]
    else:
        for p in range(count):
            out[p] = ZERO if base[p] == ZERO else exp(gamma * log(base[p]))


@fused_part
def read_rows(values: Any, start: Any, job: Any, count: Any, rows: Any) -> None:
    """Read `count` pixels of each channel as float32: rows[k, p]."""
    for k in range(job.channels):
        row = rows[k]
        place = start + k * values.channel
        if values.bfloat:
            half = carray(uint16_at(values.address + 2 * place), 1)
            if values.pixel == 1:
                for p in range(count):
                    row[p] = float_of(i32(half[p]) << BFLOAT)
            else:
                for p in range(count):
                    row[p] = float_of(i32(half[p * values.pixel]) << BFLOAT)
        else:
            full = carray(float32_at(values.address + 4 * place), 1)
            if values.pixel == 1:
                for p in range(count):
                    row[p] = full[p]
            else:
                for p in range(count):
                    row[p] = full[p * values.pixel]


@fused_part
def rounded_bfloat(value: Any) -> Any:
    """float32 -> the bits of the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = bits_of(value)
    nearest = (bits + BFLOAT_HALF + ((bits >> BFLOAT) & ODD)) >> BFLOAT
    return np.uint16(nearest) if value == value else np.uint16(0x7FC0)


@fused_part
def write_rows(rows: Any, values: Any, start: Any, job: Any, count: Any) -> None:
    """Write rows[k, p] where `read_rows` would read them."""
    for k in range(job.channels):
        row = rows[k]
        place = start + k * values.channel
        if values.bfloat:
            half = carray(uint16_at(values.address + 2 * place), 1)
            if values.pixel == 1:
                for p in range(count):
                    half[p] = rounded_bfloat(row[p])
            else:
                for p in range(count):
                    half[p * values.pixel] = rounded_bfloat(row[p])
        else:
            full = carray(float32_at(values.address + 4 * place), 1)
            if values.pixel == 1:
                for p in range(count):
                    full[p] = row[p]
            else:
                for p in range(count):
                    full[p * values.pixel] = row[p]


@fused_part
def class_of(label: Any, ignore: Any, labels: Any) -> Any:
    """Give the class, -1 where ignored, -2 where bad."""
    known = (label >= 0) & (label < labels)
    return i32(-1) if label == ignore else i32(label) if known else i32(-2)


@fused_part
def read_classes(target: Any, start: Any, job: Any, count: Any, classes: Any) -> None:
    """Read `count` labels of the target's width as `class_of` gives them, the narrow ones in 32 bits."""
    labels = i32(job.labels)
    ignore = i32(job.ignore if abs(job.ignore) < 1 << 31 else -(1 << 31))  # which no narrow label is
    if target.width == 1:
        bytes_ = carray(uint8_at(target.address + start), 1)
        for p in range(count):
            classes[p] = class_of(i32(bytes_[p]), ignore, labels)
    elif target.width == 2:
        shorts = carray(int16_at(target.address + 2 * start), 1)
        for p in range(count):
            classes[p] = class_of(i32(shorts[p]), ignore, labels)
    elif target.width == 4:
        ints = carray(int32_at(target.address + 4 * start), 1)
        for p in range(count):
            classes[p] = class_of(np.int64(ints[p]), job.ignore, job.labels)
    else:
        longs = carray(int64_at(target.address + 8 * start), 1)
        for p in range(count):
            classes[p] = class_of(longs[p], job.ignore, job.labels)
