"""Where a run's outputs are until a commit names them, and how those that none will name are deleted."""

import contextlib
import itertools
import posixpath
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pyarrow.fs import FileSystem

from compaction_kit.arrow.worker import RewriteOutput
from compaction_kit.arrow.worker.files import Storage
from compaction_kit.errors import CompactionKitError
from compaction_kit.execute.failures import BinFailed
from compaction_kit.log.paths import is_within
from compaction_kit.storage import LocalStore, Store, checksum_place

# How long to try to delete a folder that tasks may still write to.
_DELETING_SECONDS = 30
# Folders of a store that are listed at once.
_LISTINGS = 32


class OnDisk:
    """Outputs on a local disk: written to a folder of the run's own, and moved when all are there.

    A Python worker goes on for a while when its task has been cancelled, or was tried again elsewhere: it
    can't write to a folder that is gone.
    """

    files = None
    may_join = True

    def __init__(self, store: LocalStore, folders: Mapping[int, str], run: str):
        self._store, self._folders, self._run = store, folders, run
        self._own = f"compaction-kit-{run}"
        self._has_begun = False
        self.lease = store.place(self._own)

    @property
    def has_begun(self) -> bool:
        """Whether a task writes, which takes a while in workers that have just been started."""
        # If the folder was deleted, the tasks say so.
        with contextlib.suppress(CompactionKitError):
            self._has_begun = self._has_begun or len(self._store.entries(self._own)) > 1
        return self._has_begun

    def output(self, number: int) -> str:
        """Return what the path of a bin's output begins with."""
        return f"{self.lease}/part-{number:05d}-{self._run}"

    def __enter__(self) -> None:
        self._store.make_folder(self._own, exist_ok=False)
        # VACUUM deletes empty folders at once, and this file in its time if the process is killed.
        self._store.create(f"{self._own}/in-use", b"")

    def __exit__(self, *error: object) -> None:
        end = time.monotonic() + _DELETING_SECONDS
        while self._store.is_taken(self._own) and time.monotonic() < end:
            # Again, if a file came after its listing.
            self._store.delete(self._own)

    def publish(self, outputs: Iterable[RewriteOutput]) -> list[RewriteOutput]:
        """Move outputs to the folders of their bins."""
        store, moved = self._store, list[RewriteOutput]()
        made = {folder: _made(store, folder) for folder in set(self._folders.values())}
        try:
            for output in outputs:
                name = posixpath.basename(output.path)
                place = name and posixpath.join(made[self._folders[output.number]], name)
                moved.append(output._replace(path=place and store.place(place)))
                if place:
                    store.move(output.path, place)
                    with contextlib.suppress(FileNotFoundError):
                        store.move(checksum_place(output.path), checksum_place(place))
        except BaseException:
            self.discard(moved)
            raise
        return moved

    def discard(self, outputs: Iterable[RewriteOutput]) -> None:
        """Delete outputs that no commit will name."""
        for path in (output.path for output in outputs if output.path):
            self._store.delete(path)
            self._store.delete(checksum_place(path))

    # All others went with the folder.
    delete_unreferenced = discard


class InStore:
    """Outputs on an object store, which publishes a file when it is closed: they are written in place.

    A task that outlives the run deletes its own outputs, when it sees that the lease is gone (see
    `rewrite_bins`). Those that were there before are found by listing.
    """

    # The parts of a bin would have to be written, and read, once more.
    may_join = False
    # Not known.
    has_begun = True

    def __init__(self, store: Store, folders: Mapping[int, str], run: str):
        self._store, self._folders, self._run = store, folders, run
        self._published: set[str] = set()
        # VACUUM deletes it in its time, if the process is killed.
        self.lease = store.place(f"compaction-kit-{run}.in-use")

    @property
    def files(self) -> FileSystem:
        """The file system for executors, with credentials that don't end soon."""
        found = self._store.filesystem
        if found is None:
            raise BinFailed(f"executors can't write to {self._store.root} by pyarrow")
        return found

    def output(self, number: int) -> str:
        """Return what the place of a bin's output begins with."""
        return self._store.place(posixpath.join(self._folders[number], f"part-{number:05d}-{self._run}"))

    def __enter__(self) -> None:
        with Storage(self.files).create(self.lease) as file:
            file.write(b"")

    def __exit__(self, *error: object) -> None:
        Storage(self.files).delete(self.lease)

    def publish(self, outputs: Iterable[RewriteOutput]) -> list[RewriteOutput]:
        """Take note of the outputs, which are in their places."""
        found = list(outputs)
        self._published = {output.path for output in found}
        return found

    def discard(self, outputs: Iterable[RewriteOutput]) -> None:
        """Leave outputs that no commit will name to `delete_unreferenced`."""

    def delete_unreferenced(self, unnamed: Iterable[RewriteOutput]) -> None:
        """Delete the outputs that no commit names, and those of tasks that reported none."""
        storage = Storage(self.files)
        named = self._published - {output.path for output in unnamed}

        def delete_in(folder: str) -> None:
            # What can't be listed or deleted now is left to VACUUM.
            with contextlib.suppress(CompactionKitError, OSError):
                for entry in self._store.entries(folder):
                    place = self._store.place(posixpath.join(folder, entry.name))
                    if self._run in entry.name and place not in named:
                        storage.delete(place)

        with ThreadPoolExecutor(_LISTINGS) as pool:
            list(pool.map(delete_in, set(self._folders.values())))


Staging = OnDisk | InStore


def staging_for(store: Store, folders: Mapping[int, str], run: str) -> Staging:
    """Return where the outputs of a run go, by the folder of each bin; their names have the run's id."""
    return OnDisk(store, folders, run) if isinstance(store, LocalStore) else InStore(store, folders, run)


def _made(store: LocalStore, folder: str) -> str:
    """Make a table's folder if it isn't there; returns the table's own, "", if a link leads out of that."""
    above = itertools.accumulate(folder.split("/"), "{}/{}".format)
    if not all(is_within(store.real(place), store.root) for place in above):
        return ""
    store.make_folder(folder)
    return folder
