import numpy as np
import pytest

from compaction_kit.execute import CompactionResult
from compaction_kit.verify import Fingerprint


def result_of(
    fingerprint: Fingerprint | None, as_planned: bool = True, refusals: dict[int, str] | None = None
) -> CompactionResult:
    before, after = np.array([4] * 1_201), np.array([1_024, 1_024, 4])
    return CompactionResult(
        *("optimize", "as asked for", before, after, (5,)),
        num_bins=2,
        num_files_added=2,
        num_files_removed=1_200,
        bytes_added=2_048,
        bytes_removed=4_096,
        seconds=1.25,
        verified=True if fingerprint else None,
        fingerprint=fingerprint,
        refusals=refusals or {},
        as_planned=as_planned,
    )


def test_the_summary_tells_the_outcome_fact_by_fact() -> None:
    facts = dict(line.split(maxsplit=1) for line in result_of(Fingerprint(7, (1, 2))).summary().splitlines())
    assert facts == {
        "version": "5, by optimize",
        "files": "1,200 → 2 (the table: 1,201 → 3)",
        "bytes": "4 KiB → 2 KiB",
        "bins": "2, as planned",
        "content": "identical: 7 rows, 2 hashes over every column",
        "seconds": "1.2",
        "strategy": "as asked for",
    }


@pytest.mark.parametrize(("as_planned", "words"), [(True, "2, as planned"), (False, "NOT as planned")])
def test_the_summary_does_not_claim_what_was_not_done(as_planned: bool, words: str) -> None:
    summary = result_of(None, as_planned).summary()
    assert "not compared" in summary
    assert words in summary


def test_bins_that_were_left_alone_are_told_with_the_reasons() -> None:
    reasons = {1: "a file has a deletion vector", 3: "a file has a deletion vector", 4: "it is odd"}
    summary = result_of(None, refusals=reasons).summary()
    facts = dict(line.split("  ", 1) for line in summary.splitlines())
    assert facts["left alone"].strip() == "3 bins: a file has a deletion vector; it is odd"
