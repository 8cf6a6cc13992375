"""What the tests of this folder share."""

from datetime import timedelta

import pytest

from compaction_kit.sinklog.policy import Kind, Policy


@pytest.fixture(scope="package")
def tuned() -> dict[Kind, Policy]:
    """Policies that clean up soon: another interval for the source than for the sink."""
    at_once = timedelta()
    return {Kind.SINK: Policy(3, 4, at_once), Kind.SOURCE: Policy(4, 4, at_once)}
