import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.text import (
    GIB,
    KIB,
    MIB,
    format_files,
    format_partition,
    format_seconds,
    format_size,
    parse_size,
    parse_spark_size,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1", 1),
        ("512 B", 512),
        ("1 KiB", KIB),
        ("128 MiB", 128 * MIB),
        ("128mib", 128 * MIB),
        ("  1.5 GiB ", 3 * GIB // 2),
        ("100 MB", 100_000_000),
        ("2kb", 2_000),
        ("0.5 KiB", 512),
        ("1 TiB", 1024 * GIB),
    ],
)
def test_text_is_read_in_binary_and_decimal_units(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "value",
    [
        *("12 parsecs", "", "MiB", "-1", "-5 MiB", "1e3", "1 2 MiB", "0", "0 MiB", "9 PiB PiB", "20 EiB"),
        *(0, -1, 1.5, True, False, math.nan, math.inf, -math.inf, 2**63, 10**400, "9" * 40 + ".5 PB"),
        *(None, [1], b"1", 1j),
    ],
    ids=repr,
)
def test_what_is_no_size_is_refused_in_one_sentence_with_the_value(value: object) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_size(value, "max_file_size")  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("max_file_size=")
    assert str(value) in message


@given(st.one_of(st.text(), st.floats(), st.integers()))
def test_anything_is_a_size_in_range_or_an_error_of_ours(value: str | float) -> None:
    try:
        size_bytes = parse_size(value)
    except InvalidArgumentError:
        return
    assert 1 <= size_bytes < 2**63
    if not isinstance(value, str):
        assert size_bytes == value


@given(st.integers(1, 2**53), st.sampled_from(["KiB", "MiB", "GiB", "KB", "MB", "GB", "kIb", "mB"]))
def test_a_whole_number_of_units_is_exact(number: int, unit: str) -> None:
    factor = (1024 if "i" in unit.lower() else 1000) ** ("kmg".index(unit[0].lower()) + 1)
    if number * factor < 2**63:
        assert parse_size(f"{number} {unit}") == number * factor


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1_000, "1.0 KiB"),
        (KIB, "1 KiB"),
        (1_536, "1.5 KiB"),
        (128 * MIB, "128 MiB"),
        (100 * MIB + 1, "100 MiB"),
        (3 * GIB, "3 GiB"),
        (2_000 * 1024**5, "2,000 PiB"),
    ],
)
def test_sizes_are_written_in_binary_units(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("134217728", 2**27),
        ("128m", 2**27),
        ("128 MB", 2**27),
        ("1g", 2**30),
        ("2kb", 2_048),
        ("0", 0),
        ("7b", 7),
    ],
)
def test_settings_of_spark_are_binary_whatever_they_are_called(text: str, size_bytes: int) -> None:
    assert parse_spark_size(text, "delta.targetFileSize") == size_bytes


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0042, "4.2 ms"),
        (0.042, "42 ms"),
        (0.0996, "0.10 s"),
        (0.42, "0.42 s"),
        (0.999, "1.0 s"),
        (1.34, "1.3 s"),
        (9.96, "10 s"),
        (119.4, "119 s"),
        (125, "2 min 5 s"),
        (3780, "63 min 0 s"),
        (7200, "2 h 0 min"),
    ],
    ids=str,
)
def test_seconds_are_written_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 files (about 0 B in total)"), (1, "1 file (about 2 MiB)"), (3, "3 files (about 6 MiB in total)")],
)
def test_bytes_of_several_files_are_said_to_be_their_total(number: int, text: str) -> None:
    assert format_files(number, number * 2 * MIB, "about ") == text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"num_files": 2}, ""),
        ({"partition.p": "a", "num_files": 2, "partition.q.r": "1"}, "p=a, q.r=1"),
        ({"partition.p": None, "partition.q": "", "partition.r": "None"}, "p IS NULL, q IS NULL, r=None"),
    ],
)
def test_a_partition_is_named_by_its_columns_with_null_as_in_sql(row: dict[str, object], text: str) -> None:
    assert format_partition(row) == text
