"""Check that a call is refused, and with which error."""

from collections.abc import Callable
from typing import Any

import pytest

from compaction_kit import errors


def refused(
    call: Callable[..., object], kind: type[Exception], *words: str, **options: Any
) -> errors.CompactionKitError:
    """Check that a call is refused in one sentence with these words; return the error."""
    with pytest.raises(errors.CompactionKitError) as caught:
        call(**options)
    assert type(caught.value) is kind
    # Use the raw message, because str() joins the lines of a name.
    assert "\n" not in Exception.__str__(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []
    return caught.value
