"""Keep the lines with a number that a notebook's cells print, and compare them at each run."""

import json
import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "outputs"
# Sizes differ by a few bytes with the times and ids that are written, and with releases of Parquet's writers.
# Data frames write bytes with five digits or more without commas, and shares with many decimals.
_MEASURED = re.compile(
    r"(?:\d[\d,.]*\s?(?:ms|s|min|h)\b\s?)+|\d[\d,.]* (?:(?:[KMGT]i)?B|bytes)\b"
    r"|\b[1-9]\d{4,}(?:\.\d+)?\b|\b\d+\.\d{4,}\b"
)
# Days, times, addresses and temporary folders; figures and their texts, whose size is printed.
_OF_ONE_RUN = re.compile(r"\d:\d\d|\b20[2-9]\d-\d|0x[0-9a-f]{6}|/tmp/|<(?:Chart|Figure) |^\[Text\(")


def lines_with_a_number(cell_outputs: Sequence[Any]) -> list[str]:
    """Return the lines with a number in a cell's text, without figures; "…" for durations and sizes."""
    texts = [out["text"] for out in cell_outputs if out.get("name") == "stdout"]
    shown = [out["data"] for out in cell_outputs if "data" in out]
    texts += [
        data.get("text/plain", "")
        for data in shown
        if not any(kind.startswith(("image/", "application/")) for kind in data)
    ]
    lines = (" ".join(_MEASURED.sub("… ", line).split()) for text in texts for line in text.splitlines())
    return [line for line in lines if re.search(r"\d", line) and not _OF_ONE_RUN.search(line)]


def in_order(expected: Sequence[str], printed: Sequence[str]) -> list[str]:
    """Return the expected lines that were printed in this order; others may lie between them."""
    found, begin = [], 0
    for line in expected:
        if line in printed[begin:]:
            begin = printed.index(line, begin) + 1
            found.append(line)
    return found


def difference(expected: Sequence[str], printed: Sequence[str]) -> str:
    """Return the first expected line that wasn't printed, and the most similar line; empty if all were."""
    pairs = zip_longest(expected, in_order(expected, printed))
    missing = next((line for line, found in pairs if line != found), "")
    closest = get_close_matches(missing, printed, n=1, cutoff=0) or ["no line with a number"]
    return missing and f"expected  {missing}\n     got  {closest[0]}"


def compare_or_accept(notebook: Path, cell: str, cell_outputs: Sequence[Any], accept: str | None) -> str:
    """Return the difference from a cell's kept lines; or keep the "printed" lines, or the "stable" ones."""
    path = FOLDER / f"{notebook.stem}.json"
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    expected, printed = kept.get(cell, []), lines_with_a_number(cell_outputs)
    if accept is None:
        return difference(expected, printed)
    kept[cell] = printed if accept == "printed" else in_order(expected, printed)
    if not kept[cell]:
        del kept[cell]
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return ""
