import re
from typing import Any

import numpy as np

from compaction_kit.execute import CompactionResult
from compaction_kit.verify import Fingerprint


def facts_of(**changes: Any) -> dict[str, str]:
    before, after = np.array([4] * 1_201), np.array([1_024, 1_024, 4])
    known: dict[str, Any] = {"num_bins": 2, "num_files_added": 2, "num_files_removed": 1_200}
    known |= {"bytes_added": 2_048, "bytes_removed": 4_096} | changes
    result = CompactionResult("optimize", "as asked for", before, after, (5,), **known)
    return dict(re.split("  +", line, maxsplit=1) for line in result.summary().splitlines())


def test_the_summary_tells_the_outcome_fact_by_fact() -> None:
    assert facts_of(seconds=1.25, verified=True, fingerprint=Fingerprint(7, (1, 2))) == {
        "version": "5, by optimize",
        "files": "1,200 → 2 (the table: 1,201 → 3)",
        "bytes": "4 KiB → 2 KiB",
        "bins": "2, as planned",
        "content": "identical: 7 rows, 2 hashes over every column",
        "seconds": "1.2",
        "strategy": "as asked for",
    }


def test_the_summary_does_not_claim_what_was_not_done() -> None:
    reasons = {1: "a file has a deletion vector", 3: "a file has a deletion vector", 4: "it is odd"}
    facts = facts_of(as_planned=False, refusals=reasons)
    assert (facts["content"], facts["bins"]) == ("not compared", "2, NOT as planned")
    assert facts["left alone"] == "3 bins: a file has a deletion vector; it is odd"
