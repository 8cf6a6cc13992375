"""Keep a run's outputs until a commit names them, and delete those that no commit will name."""

import contextlib
import posixpath
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pyarrow.fs import FileSystem

from compaction_kit.arrow.worker import RewriteOutput
from compaction_kit.arrow.worker.files import Storage
from compaction_kit.errors import CompactionKitError
from compaction_kit.log.paths import is_within
from compaction_kit.storage import LocalStore, Store, checksum_place

# How long to try to delete a folder that tasks may still write to.
_DELETING_SECONDS = 30
# Folders of a store that are listed at once.
_LISTINGS = 32


@dataclass
class OnDisk:
    """Outputs on a local disk: written to the run's own folder, and moved when all are complete.

    A Python worker goes on for a while after its task was cancelled, or tried again elsewhere; it can't write
    to a folder that was deleted.
    """

    store: LocalStore
    folders: Mapping[int, str]
    run: str

    files = None
    may_join = True

    def __post_init__(self) -> None:
        self._own = f"compaction-kit-{self.run}"
        self.lease = self.store.place(self._own)

    def output(self, number: int) -> str:
        """Return the prefix of the path of a bin's output."""
        return f"{self.lease}/part-{number:05d}-{self.run}"

    def __enter__(self) -> None:
        self.store.make_folder(self._own, exist_ok=False)
        # VACUUM deletes empty folders at once, but this file only later, if the process is killed.
        self.store.create(f"{self._own}/in-use", b"")

    def __exit__(self, *error: object) -> None:
        end = time.monotonic() + _DELETING_SECONDS
        while self.store.status(self._own) and time.monotonic() < end:
            # Repeated, because a file may appear after the folder was listed.
            self.store.delete(self._own)

    def publish(self, outputs: Iterable[RewriteOutput], published: dict[int, RewriteOutput]) -> None:
        """Move outputs to the folders of their bins, and add them to `published`."""
        made = {folder: self._made(folder) for folder in set(self.folders.values())}
        for output in outputs:
            name = posixpath.basename(output.path)
            place = name and posixpath.join(made[self.folders[output.number]], name)
            # Added before the move, so that the output is deleted if the move fails.
            published[output.number] = output._replace(path=place and self.store.place(place))
            if place:
                self.store.move(output.path, place)
                with contextlib.suppress(FileNotFoundError):
                    self.store.move(checksum_place(output.path), checksum_place(place))

    def _made(self, folder: str) -> str:
        """Make a folder if it doesn't exist; returns "", the table's own, if a link leads out of that."""
        if not is_within(self.store.real(folder), self.store.root):
            return ""
        self.store.make_folder(folder)
        return folder

    def delete_unreferenced(self, unnamed: Iterable[RewriteOutput]) -> None:
        """Delete published outputs that no commit names; all others were deleted with the run's folder."""
        for path in (output.path for output in unnamed if output.path):
            self.store.delete(path)
            self.store.delete(checksum_place(path))


@dataclass
class InStore:
    """Outputs on an object store: written in place, because the store publishes a file when it is closed.

    A task that outlives the run deletes its own outputs, when it sees that the lease is gone (see
    `rewrite_bins`). Earlier outputs are found by listing.
    """

    store: Store
    folders: Mapping[int, str]
    run: str
    _published: set[str] = field(default_factory=set)

    # Joining the parts of a bin would read and write them once more.
    may_join = False

    def __post_init__(self) -> None:
        # If the process is killed, VACUUM deletes this file later.
        self.lease = self.store.place(f"compaction-kit-{self.run}.in-use")

    @property
    def files(self) -> FileSystem | None:
        """The file system for executors, with credentials that don't expire soon."""
        return self.store.filesystem

    def output(self, number: int) -> str:
        """Return the prefix of the place of a bin's output."""
        return self.store.place(posixpath.join(self.folders[number], f"part-{number:05d}-{self.run}"))

    def __enter__(self) -> None:
        with Storage(self.files).create(self.lease) as file:
            file.write(b"")

    def __exit__(self, *error: object) -> None:
        Storage(self.files).delete(self.lease)

    def publish(self, outputs: Iterable[RewriteOutput], published: dict[int, RewriteOutput]) -> None:
        """Add outputs, which are in place already, to `published`."""
        published |= {output.number: output for output in outputs}
        self._published = {output.path for output in published.values()}

    def delete_unreferenced(self, unnamed: Iterable[RewriteOutput]) -> None:
        """Delete outputs that no commit names, and outputs of tasks that reported none."""
        storage = Storage(self.files)
        named = self._published - {output.path for output in unnamed}

        def delete_in(folder: str) -> None:
            # VACUUM deletes the files that can't be listed or deleted now.
            with contextlib.suppress(CompactionKitError, OSError):
                for entry in self.store.entries(folder):
                    place = self.store.place(posixpath.join(folder, entry.name))
                    if self.run in entry.name and place not in named:
                        storage.delete(place)

        with ThreadPoolExecutor(_LISTINGS) as pool:
            list(pool.map(delete_in, set(self.folders.values())))


Staging = OnDisk | InStore


def staging_for(store: Store, folders: Mapping[int, str], run: str) -> Staging:
    """Return the staging of a run's outputs, by the folder of each bin; names contain the run's id."""
    return OnDisk(store, folders, run) if isinstance(store, LocalStore) else InStore(store, folders, run)
