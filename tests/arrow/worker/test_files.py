"""Parts of bins rewritten on an object store, without Spark."""

import re
import time
import uuid
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compaction_kit.arrow.worker import RewriteOutput, RewriteTask, files, outputs, rewrite_bins
from tests.arrow.worker.test_rewrite import task_of
from tests.stores import BUCKET, SECRET_KEY, Server

MIXED = pa.table({"i": range(1_000), "s": [f"text {i % 7}" for i in range(1_000)]})


def stored(s3: Server, share: RewriteTask, number: int = 0) -> RewriteTask:
    """Upload the files of a task; return the task for these objects, with the lease of its run."""
    folder = Path(share.lease)
    root = s3.upload(folder, f"shares/{uuid.uuid4().hex}/p=a %b")
    mark = f"{root.rpartition('/')[0]}/in-use"
    with s3.filesystem().open_output_stream(mark.removeprefix("s3a://")) as file:
        file.write(b"")
    s3.requests.clear()
    inputs = [(f"{root}/{Path(path).relative_to(folder)}", size) for path, size in share.inputs]
    return share._replace(number=number, inputs=inputs, output=f"{root}/part-{number}", lease=mark)


def results_of(s3: Server, *shares: RewriteTask) -> list[RewriteOutput]:
    found = rewrite_bins(map(tuple, shares), lambda _: None, s3.filesystem())
    return [RewriteOutput(*one) for one in found]


def rows_of(s3: Server, output: RewriteOutput) -> pa.Table:
    place = output.path.removeprefix("s3a://")
    assert s3.filesystem().get_file_info(place).size == output.size_bytes
    return pq.read_table(place, filesystem=s3.filesystem(), partitioning=None)


def outputs_in(s3: Server, share: RewriteTask) -> set[str]:
    names = s3.names(share.output.removeprefix(f"s3a://{BUCKET}/").rpartition("/")[0])
    return {name for name in names if name.startswith("part-")}


def of_kind(s3: Server, share: RewriteTask) -> Counter[str]:
    """Count requests by method, without those for the lease and for the first connection."""
    mark = share.lease.removeprefix("s3a:/")
    return Counter(one.method for one in s3.requests if one.path not in (mark, f"/{BUCKET}"))


def test_small_objects_take_two_requests_each_and_one_to_be_written(s3: Server, tmp_path: Path) -> None:
    one = stored(s3, task_of(tmp_path, [MIXED, MIXED.slice(10), MIXED.slice(20, 5)]))
    before = time.time()
    (done,) = results_of(s3, one)
    assert (done.refusal, done.failure, done.num_rows) == (None, None, 1_995)
    # The last HEAD is for the output.
    assert of_kind(s3, one) == {"HEAD": 4, "GET": 3, "PUT": 1}
    assert rows_of(s3, done).equals(pa.concat_tables([MIXED, MIXED.slice(10), MIXED.slice(20, 5)]))
    assert before - 2 <= done.modification_time / 1_000 <= time.time() + 2
    assert outputs_in(s3, one) == {done.path.rpartition("/")[2]}


def test_large_objects_come_in_groups(s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STORED_SMALL_BYTES", 2_000)
    monkeypatch.setattr(outputs, "AT_ONCE_BYTES", 0)
    large = pa.table({"a": range(300_000), "b": [i * 0.5 for i in range(300_000)]})
    one = task_of(tmp_path, [large, pa.table({"a": [1, 2, 3]})], large.schema, row_group_size=100_000)
    assert [size > 2_000 for _, size in one.inputs] == [True, False]
    one = stored(s3, one)
    (done,) = results_of(s3, one)
    assert (done.failure, done.num_rows) == (None, 300_003)
    # One for the footer, one for each row group, and one for the small file.
    assert of_kind(s3, one)["GET"] == 1 + 3 + 1
    assert rows_of(s3, done).slice(0, 300_000).equals(large)


def test_a_store_that_is_slow_or_drops_connections_is_asked_again(s3: Server, tmp_path: Path) -> None:
    faults: list[tuple[int, str] | str] = [(503, "SlowDown"), (500, "InternalError"), ""]
    # All in one call, because each takes a while until it is tried again.
    shares = [stored(s3, task_of(tmp_path / str(i), [MIXED, MIXED]), i) for i in range(len(faults))]
    failed: dict[str, set[tuple[str, str]]] = {share.lease: set() for share in shares}

    def first(method: str, path: str) -> tuple[int, str] | str | None:
        for fault, (mark, known) in zip(faults, failed.items(), strict=True):
            folder = mark.removeprefix("s3a:/").removesuffix("in-use")
            if path.startswith(folder) and path.endswith(".parquet") and (method, path) not in known:
                known.add((method, path))
                return fault
        return None

    s3.fault = first
    found = results_of(s3, *shares)
    assert [(done.failure, done.num_rows) for done in found] == [(None, 2_000)] * len(faults)
    for known in failed.values():
        assert {method for method, _ in known} == {"HEAD", "GET", "PUT"}


@pytest.mark.parametrize(
    ("method", "fault", "said"),
    [
        ("GET", (403, "AccessDenied"), "ACCESS_DENIED"),
        ("PUT", (403, "AccessDenied"), "ACCESS_DENIED"),
        # The code depends on whether pyarrow has the response's text by then.
        ("GET", (503, "SlowDown"), "(SERVICE_UNAVAILABLE|SLOW_DOWN)"),
        ("PUT", "", "NETWORK_CONNECTION"),
    ],
)
def test_what_cannot_be_read_or_written_is_one_sentence(
    s3: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    fault: tuple[int, str] | str,
    said: str,
) -> None:
    monkeypatch.setattr(files, "MOST_TRIES", 1)
    one, sound = (stored(s3, task_of(tmp_path / str(i), [MIXED] * 3), i) for i in range(2))
    folder = one.lease.removeprefix("s3a:/").removesuffix("in-use")
    s3.fault = lambda asked, path: fault if asked == method and path.startswith(folder) else None
    failed, done = results_of(s3, one, sound)
    s3.fault = None
    told = str(failed.failure)
    assert (failed.path, done.failure, done.num_rows) == ("", None, 3_000)
    assert told.startswith(f"{one.inputs[0][0]} can't be read: ") == (method == "GET")
    assert re.search(f"AWS Error {said} during {method.title()}Object", told)
    assert "\n" not in told
    assert SECRET_KEY not in told
    assert outputs_in(s3, one) == set()


@pytest.mark.nightly  # Each retry waits twice as long as the one before.
def test_a_busy_store_is_asked_again(s3: Server, tmp_path: Path) -> None:
    one = stored(s3, task_of(tmp_path, [MIXED] * 2))
    busy = iter([(503, "SlowDown")] * 4)
    s3.fault = lambda method, path: next(busy, None) if path.endswith(".parquet") else None
    (done,) = results_of(s3, one)
    assert (done.failure, done.num_rows, next(busy, None)) == (None, 2_000, None)


def test_tasks_of_a_run_whose_lease_is_gone_stop_and_leave_nothing(s3: Server, tmp_path: Path) -> None:
    one, two = (stored(s3, task_of(tmp_path / str(i), [MIXED]), i) for i in range(2))
    two = two._replace(lease=one.lease)
    late = rewrite_bins(map(tuple, [one, two]), lambda _: None, s3.filesystem())
    # The first output is written, and not reported to the driver yet.
    assert RewriteOutput(*next(late)).num_rows == 1_000
    s3.filesystem().delete_file(one.lease.removeprefix("s3a://"))
    for _ in late:
        pass
    assert (outputs_in(s3, one), outputs_in(s3, two)) == (set(), set())
    assert results_of(s3, one) == []
    assert outputs_in(s3, one) == set()
