"""Sizes in bytes: read them from text, write them in binary units."""

import re
from numbers import Real

from compaction_kit.errors import InvalidArgumentError, show_value

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_FACTORS = {"": 1, "b": 1}
_FACTORS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", start=1)}
_FACTORS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", start=1)}
_SIZE = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")
_LARGEST = 2**63 - 1


def parse_size(value: int | float | str, name: str = "size") -> int:
    """Read a size in bytes.

    Args:
        value: A whole number of bytes, or text such as "128 MiB" (binary) or "100 MB" (decimal).
        name: What the size is, for the error's sentence.

    Returns:
        The size in bytes, at least 1 and at most a signed 64-bit integer.

    Raises:
        InvalidArgumentError: It is no size, or out of that range.
    """
    advice = 'give a number of bytes or text such as "128 MiB"'
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        factor = _FACTORS.get(match[2].lower()) if match else None
        if match is None or factor is None:
            raise InvalidArgumentError(f"{name}={show_value(value)} is not a size: {advice}.")
        number = float(match[1]) if "." in match[1] else int(match[1])
        size_bytes = number * factor
    elif isinstance(value, bool) or not isinstance(value, Real) or value != value:
        raise InvalidArgumentError(f"{name}={value!r} is not a size: {advice}.")
    else:
        size_bytes = value
    if not 1 <= size_bytes <= _LARGEST:
        raise InvalidArgumentError(f"{name}={value!r} is out of range: give 1 byte to 8 EiB.")
    if size_bytes != int(size_bytes) and not isinstance(value, str):
        raise InvalidArgumentError(f"{name}={value!r} is not a whole number of bytes: {advice}.")
    return int(size_bytes)


def parse_spark_size(value: str, name: str) -> int:
    """Read a size as Spark's settings and Delta's properties write it: "134217728", "128m", "128 MB".

    Every unit is binary there (JavaUtils.byteStringAs).

    Args:
        value: The text.
        name: The setting, for the error's sentence.

    Raises:
        InvalidArgumentError: It is no size.
    """
    match = _SIZE.fullmatch(value)
    letter = match[2].lower().removesuffix("b") if match else "?"
    if match is None or letter not in ("", *"kmgtp"):
        raise InvalidArgumentError(f'{name}={show_value(value)} is not a size: set it to one such as "128m".')
    return int(float(match[1]) * 1024 ** ("kmgtp".index(letter) + 1 if letter else 0))


def format_size(size_bytes: float) -> str:
    """Write a size in bytes for people: "0 B", "512 B", "1.5 KiB", "128 MiB"."""
    amount, unit = float(size_bytes), _BINARY[0]
    for unit in _BINARY:
        if abs(amount) < 999.5 or unit == _BINARY[-1]:
            break
        amount /= 1024
    digits = 0 if unit == "B" or amount >= 99.95 or amount == int(amount) else 1
    return f"{amount:,.{digits}f} {unit}"


def format_count(number: int, noun: str) -> str:
    """Write a number of things for people: "1 file", "2,000 files"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
