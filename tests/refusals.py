"""What a call says that is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from compaction_kit import errors


def refused(
    call: Callable[..., object], kind: type[Exception], *words: str, **options: Any
) -> errors.CompactionKitError:
    """The call with these options is refused in one sentence that holds the words; returns the error."""
    with pytest.raises(errors.CompactionKitError) as caught:
        call(**options)
    assert type(caught.value) is kind
    # As it was raised; str() joins the lines of a name.
    assert "\n" not in Exception.__str__(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []
    return caught.value
