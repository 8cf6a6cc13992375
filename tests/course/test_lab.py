"""What a lesson's lab is made of."""

import re

import pytest
from course.lab import Choice, Finding, Lab, Steps, run
from matplotlib.figure import Figure

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.text import KIB, format_size
from tests.displayed import outputs_of

LINES = "from course import figures\n\nfigures.waiting({'before': (files, 2.0), 'after': (1, 0.1)})"


def lab() -> Lab:
    def compute(size: int, where: str) -> Finding:
        if where == "nowhere":
            raise InvalidArgumentError('"nowhere" is no place: choose another one.')
        return Finding(f"{size} bytes < {where}", run(LINES, {"files": size}), LINES)

    return Lab(
        compute,
        size=Steps("Size", (KIB, 4 * KIB, 16 * KIB), KIB, format_size),
        where=Choice("Where", {"here": "a", "there": "b", "nowhere": "nowhere"}, "a"),
    )


def test_a_control_that_moves_changes_sentence_and_figure() -> None:
    shown = lab()
    assert "1024 bytes &lt; a" in shown.sentence.value
    assert shown.values == {"size": KIB, "where": "a"}
    first = shown.image.value
    # As the page sets them.
    shown.controls["size"].value = 2
    shown.controls["where"].value = "b"
    assert shown.controls["size"].text == "16 KiB"
    assert "16384 bytes &lt; b" in shown.sentence.value
    assert isinstance(shown.figure, Figure)
    assert "16,384 files" in str(shown.figure.get_label())
    assert shown.image.value != first
    assert "figures.waiting(" in shown.code.value
    assert shown.as_code() == LINES


def test_what_cant_be_computed_is_a_sentence_until_it_can() -> None:
    shown = lab()
    shown.move(where="nowhere")
    assert "&quot;nowhere&quot; is no place: choose another one." in shown.failure.value
    assert (shown.figure, shown.as_code()) == (None, "")
    assert (shown.sentence.value, shown.code.value) == ("", "")
    # The figure's room stays.
    assert re.fullmatch(
        r'<div style="aspect-ratio: [\d.]+ / [\d.]+; max-width: [\d.]+in"></div>', shown.room.value
    )
    assert "is no place" in outputs_of(shown)[1]["text/html"]
    shown.move(where="b")
    assert shown.failure.value == ""
    assert "<svg" in shown.image.value
    assert shown.room.value == ""


@pytest.mark.parametrize(
    ("moved", "what"), [({"size": 5}, "Size can't be 5: choose one of 1024"), ({"time": 1}, '"time": choose')]
)
def test_a_value_or_control_that_isnt_there_is_refused(moved: dict[str, int], what: str) -> None:
    shown = lab()
    with pytest.raises(InvalidArgumentError, match=what):
        shown.move(**moved)
    assert shown.values == {"size": KIB, "where": "a"}
    with pytest.raises(InvalidArgumentError, match="Where"):
        Choice("Where", {"here": "a"}, "b")


def test_what_is_saved_or_exported_has_the_sentence_and_the_figure() -> None:
    alive, still = outputs_of(lab())
    assert alive["application/vnd.jupyter.widget-view+json"]["model_id"]
    # Nothing but the widget: where it can't live, the still alone is seen.
    assert (alive["text/html"], alive["text/plain"]) == ("", "")
    assert still["text/plain"] == "1024 bytes < a"
    assert "1024 bytes &lt; a" in still["text/html"]
    assert "<svg" in still["text/html"]
    assert "figures.waiting" not in still["text/html"], "the folded code"


def test_lines_give_the_value_of_the_last_one() -> None:
    assert run("files = 365 * airports\nfiles + 1", {"airports": 3}) == 1_096
    with pytest.raises(InvalidArgumentError, match="end with an expression"):
        run("files = 1")
