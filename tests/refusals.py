"""What a call says that is refused."""

from collections.abc import Callable

import pytest

from compaction_kit import errors


def refused(call: Callable[[], object], kind: type[Exception], *words: str) -> None:
    """The call is refused in one sentence that holds the words."""
    with pytest.raises(errors.CompactionKitError) as caught:
        call()
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []
