"""The small widgets: what is typed and moved, and what is shown of a job."""

import pytest

from compaction_kit.text import GIB, MIB
from compaction_kit.widgets.sizes import SizeSlider


@pytest.fixture
def slider() -> SizeSlider:
    made = SizeSlider("Size", "size")
    made.size_bytes = 16 * MIB
    return made


def test_the_slider_and_the_field_say_the_same(slider: SizeSlider) -> None:
    assert (slider.slider.value, slider.field.value) == (24, "16 MiB")


def test_moving_the_slider_sets_a_power_of_two(slider: SizeSlider) -> None:
    # What a browser sends.
    slider.slider.set_state({"value": 30})
    assert (slider.size_bytes, slider.field.value) == (GIB, "1 GiB")


def test_typing_sets_exactly_what_was_typed(slider: SizeSlider) -> None:
    slider.field.set_state({"value": "100 MB"})
    assert (slider.size_bytes, slider.field.value, slider.slider.value) == (100_000_000, "100 MB", 26)


@pytest.mark.parametrize("typed", ["12 parsecs", "-1", "", "0"])
def test_a_bad_size_gets_a_sentence_and_leaves_no_size(slider: SizeSlider, typed: str) -> None:
    slider.field.set_state({"value": typed})
    assert slider.size_bytes is None
    assert slider.error.value
    assert slider.error.layout.display == ""
    slider.field.set_state({"value": "16 MiB"})
    assert slider.size_bytes == 16 * MIB
    assert slider.error.layout.display == "none"
    slider.field.set_state({"value": typed})
    slider.slider.set_state({"value": 20})
    assert (slider.size_bytes, slider.field.value) == (MIB, "1 MiB")
    assert slider.error.layout.display == "none"


def test_a_size_beyond_the_slider_can_be_typed(slider: SizeSlider) -> None:
    slider.field.set_state({"value": "1 TiB"})
    assert slider.size_bytes == 1024 * GIB
    assert slider.slider.value == slider.slider.max
