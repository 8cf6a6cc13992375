import importlib
import sys

import pytest

from compaction_kit import renamed


@pytest.mark.parametrize(
    ("name", "now", "kept"),
    [
        ("sizes", "text", "format_size"),
        ("durations", "text", "format_size"),
        ("markup", "text", "format_size"),
        ("bounds", "skipping", "read_bounds"),
        ("overlap", "skipping", "measure_overlap"),
        ("settings", "plan.thresholds", "thresholds"),
        ("sample", "plan.predict", "sampled_model"),
        ("plan.estimate", "plan.predict", "SizeModel"),
        ("concurrency", "lessons.races", "play"),
        ("concurrency.story", "lessons.races", "Story"),
        ("concurrency.hold", "lessons.writers", "Held"),
        ("streams", "lessons.streams", "compact_while_streaming"),
        ("playground", "lessons", "new_folder"),
        ("widgets.runs", "widgets.job", "Runs"),
    ],
)
def test_a_module_is_found_by_the_name_that_it_had_with_a_warning(name: str, now: str, kept: str) -> None:
    with pytest.warns(FutureWarning, match=f"compaction_kit.{name} is compaction_kit.{now} now"):
        old = importlib.import_module(f"compaction_kit.{name}")
    assert getattr(old, kept) is getattr(importlib.import_module(f"compaction_kit.{now}"), kept)


@pytest.mark.parametrize(
    ("name", "now", "attribute"),
    [
        ("streaming", "sinklog", "Policy"),
        ("streaming.names", "sinklog.policy", "Kind"),
        ("streaming.policy", "sinklog.policy", "setting"),
    ],
)
def test_a_package_and_its_modules_are_found_by_the_names_that_they_had(
    name: str, now: str, attribute: str
) -> None:
    sys.modules.pop(f"compaction_kit.{name}", None)
    with pytest.warns(FutureWarning, match=f"compaction_kit.{name} is compaction_kit.{now} now"):
        old = importlib.import_module(f"compaction_kit.{name}")
    assert getattr(old, attribute) is getattr(importlib.import_module(f"compaction_kit.{now}"), attribute)


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{renamed.__package__}.nothing")
