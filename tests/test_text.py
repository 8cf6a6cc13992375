import math
from functools import partial

import pytest

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.text import (
    GIB,
    KIB,
    MIB,
    format_range,
    format_seconds,
    format_size,
    parse_size,
    parse_spark_size,
    prose,
)
from tests.refusals import refused


def test_text_is_read_in_binary_and_decimal_units() -> None:
    sizes = {"1": 1, "512 B": 512, "128mib": 128 * MIB, "  1.5 GiB ": 3 * GIB // 2, "100 MB": 100_000_000}
    sizes |= {"2kb": 2_000, "0.5 KiB": 512, "1 TiB": 1024 * GIB, "9007199254740993 KB": 1_000 * (2**53 + 1)}
    assert {text: parse_size(text) for text in sizes} == sizes
    assert [parse_size(number) for number in (1, 2.0, 2**63 - 1)] == [1, 2, 2**63 - 1]


@pytest.mark.parametrize(
    "value",
    [
        *("12 parsecs", "", "MiB", "-5 MiB", "1e3", "1 2 MiB", "0 MiB", "9 PiB PiB", "20 EiB"),
        *("٣", "²", "9" * 40 + ".5 PB", None, [1], b"1", 1j, True, False),
        *(0, -1, 1.5, 1e300, math.nan, math.inf, 2**63),
    ],
    ids=repr,
)
def test_what_is_no_size_is_refused_in_one_sentence_with_the_value(value: object) -> None:
    refused(partial(parse_size, value, "max_file_size"), InvalidArgumentError, "max_file_size=", str(value))  # type: ignore[arg-type]


def test_sizes_are_written_in_binary_units() -> None:
    texts = {0: "0 B", 1: "1 B", 999: "999 B", 1_000: "1.0 KiB", KIB: "1 KiB", 1_536: "1.5 KiB"}
    texts |= {128 * MIB: "128 MiB", 100 * MIB + 1: "100 MiB", 3 * GIB: "3 GiB", 2_000 * 1024**5: "2,000 PiB"}
    assert {size: format_size(size) for size in texts} == texts


def test_settings_of_spark_are_binary_whatever_they_are_called() -> None:
    sizes = {"134217728": 2**27, "128m": 2**27, "128 MB": 2**27, "1g": 2**30, "2kb": 2_048, "0": 0, "7b": 7}
    sizes |= {str(2**63 - 1): 2**63 - 1, "9007199254740993": 2**53 + 1, "9000p": 2**63 - 1, "1.5k": 1_536}
    assert {text: parse_spark_size(text, "delta.targetFileSize") for text in sizes} == sizes


def test_seconds_are_written_for_people() -> None:
    texts = {0: "0 s", 0.0042: "4.2 ms", 0.042: "42 ms", 0.0996: "0.10 s", 0.42: "0.42 s", 0.999: "1.0 s"}
    texts |= {1.34: "1.3 s", 9.96: "10 s", 119.4: "119 s", 125: "2 min 5 s", 600: "10 min", 3780: "63 min"}
    texts |= {7200: "2 h", 11_040: "3 h 4 min"}
    assert {seconds: format_seconds(seconds) for seconds in texts} == texts
    ranges = {(0.02, 0.04): "0.1 s", (0.24, 1.13): "0.2 to 1.1 s", (3.2, 7.6): "3 to 8 s"}
    ranges |= {(9.6, 30.4): "10 to 30 s", (38.4, 133): "38 s to 2 min 10 s"}
    assert {ends: format_range(*ends) for ends in ranges} == ranges


def test_no_line_breaks_before_a_unit_or_within_a_date() -> None:
    date = '<span style="white-space:nowrap">2026-03-01</span>'
    assert prose("2 files at <2026-03-01 12:00>") == f"2\N{NO-BREAK SPACE}files at &lt;{date} 12:00&gt;"
    assert prose("part-2026-03-011.parquet") == "part-2026-03-011.parquet"
