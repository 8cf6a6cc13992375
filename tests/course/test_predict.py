"""A question, a guess and an answer in Python and in exports; tests/browser tests the rest."""

import json

import pytest
from course.predict import predict

from compaction_kit.errors import InvalidArgumentError
from tests.displayed import outputs_of


def test_the_answer_is_for_the_assert_that_follows_and_folded_in_exports() -> None:
    asked = predict("Files < bytes?", 1_095, unit="files", why="A file a day & airport.")
    assert asked.answer == 1_095
    json.dumps(asked.get_state(["answer", "choices"]))
    alive, still = outputs_of(asked)
    assert "application/vnd.jupyter.widget-view+json" in alive
    question, _, answer = still["text/html"].partition("<details>")
    assert "Files &lt; bytes?" in question
    assert "1,095" not in question
    assert "1,095 files: A file a day &amp; airport." in answer
    _, still = outputs_of(predict("Which?", "footers", ["bytes", "footers"]))
    assert "<li>bytes</li><li>footers</li>" in still["text/html"].partition("<details>")[0]


@pytest.mark.parametrize(("answer", "choices"), [("c", ["a", "b"]), (1, ["1"]), ("1", []), (True, [])])
def test_an_answer_that_cant_be_given_is_refused(answer: str, choices: list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="give one"):
        predict("What?", answer, choices)
