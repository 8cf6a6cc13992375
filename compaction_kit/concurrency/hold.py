"""A statement of which the transaction waits, all read and written, before it tries to commit."""

import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import SparkSession

from compaction_kit.errors import RunFailedError, SessionError
from compaction_kit.execute.jobs import in_thread
from compaction_kit.execute.jvm import CommitGate
from compaction_kit.session import has_jvm

_POLL_SECONDS = 0.005


class Held:
    """A writer in a thread of its own who stands before his commit until `release` is called."""

    def __init__(self, spark: SparkSession, write: Callable[[], object]):
        """Begin, and come back when the transaction has read and written all.

        Args:
            spark: The session.
            write: What is done; it has to commit to one Delta table.

        Raises:
            SessionError: The session's JVM is out of reach.
            RunFailedError: It ended without a commit.
        """
        if not has_jvm(spark):
            raise SessionError(
                "A transaction can't be held over Spark Connect, where the JVM is out of reach: use one from "
                "get_spark()."
            )
        self._gate = CommitGate(spark)
        self._outcome = in_thread(partial(self._run, write))
        while not self._gate.is_reached:
            if self._outcome.done():
                error = self._outcome.exception()
                raise RunFailedError(
                    f"The writer ended before it came to a commit: {error or 'it changed nothing'}."
                ) from error
            time.sleep(_POLL_SECONDS)

    def release(self) -> BaseException | None:
        """Let it try its commit, and wait for the end.

        Returns:
            What it raised; None if it committed.
        """
        self._gate.open()
        return self._outcome.exception()

    @property
    def transactions(self) -> list[bool]:
        """The transactions it has begun, two at most: whether each came to try its commit."""
        return self._gate.transactions

    def _run(self, write: Callable[[], object]) -> None:
        with self._gate.watching():
            write()
