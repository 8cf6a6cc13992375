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
    """Outputs on a local disk: written to a folder of the run's own, and moved when all are there.

    A Python worker goes on for a while when its task has been cancelled, or was tried again elsewhere: it
    can't write to a folder that is gone.
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
        """Return what the path of a bin's output begins with."""
        return f"{self.lease}/part-{number:05d}-{self.run}"

    def __enter__(self) -> None:
        self.store.make_folder(self._own, exist_ok=False)
        # VACUUM deletes empty folders at once, and this file in its time if the process is killed.
        self.store.create(f"{self._own}/in-use", b"")

    def __exit__(self, *error: object) -> None:
        end = time.monotonic() + _DELETING_SECONDS
        while self.store.status(self._own) and time.monotonic() < end:
            # Again, if a file came after its listing.
            self.store.delete(self._own)

    def publish(self, outputs: Iterable[RewriteOutput], published: dict[int, RewriteOutput]) -> None:
        """Move outputs to the folders of their bins, and add them to `published`."""
        made = {folder: self._made(folder) for folder in set(self.folders.values())}
        for output in outputs:
            name = posixpath.basename(output.path)
            place = name and posixpath.join(made[self.folders[output.number]], name)
            # Before it is moved: it is deleted if that fails.
            published[output.number] = output._replace(path=place and self.store.place(place))
            if place:
                self.store.move(output.path, place)
                with contextlib.suppress(FileNotFoundError):
                    self.store.move(checksum_place(output.path), checksum_place(place))

    def _made(self, folder: str) -> str:
        """Make a folder if it isn't there; returns the table's own, "", if a link leads out of that."""
        if not is_within(self.store.real(folder), self.store.root):
            return ""
        self.store.make_folder(folder)
        return folder

    def delete_unreferenced(self, unnamed: Iterable[RewriteOutput]) -> None:
        """Delete published outputs that no commit names; all others went with the run's folder."""
        for path in (output.path for output in unnamed if output.path):
            self.store.delete(path)
            self.store.delete(checksum_place(path))


@dataclass
class InStore:
    """Outputs on an object store, which publishes a file when it is closed: they are written in place.

    A task that outlives the run deletes its own outputs, when it sees that the lease is gone (see
    `rewrite_bins`). Those that were there before are found by listing.
    """

    store: Store
    folders: Mapping[int, str]
    run: str
    _published: set[str] = field(default_factory=set)

    # The parts of a bin would have to be written, and read, once more.
    may_join = False

    def __post_init__(self) -> None:
        # VACUUM deletes it in its time, if the process is killed.
        self.lease = self.store.place(f"compaction-kit-{self.run}.in-use")

    @property
    def files(self) -> FileSystem | None:
        """The file system for executors, with credentials that don't end soon."""
        return self.store.filesystem

    def output(self, number: int) -> str:
        """Return what the place of a bin's output begins with."""
        return self.store.place(posixpath.join(self.folders[number], f"part-{number:05d}-{self.run}"))

    def __enter__(self) -> None:
        with Storage(self.files).create(self.lease) as file:
            file.write(b"")

    def __exit__(self, *error: object) -> None:
        Storage(self.files).delete(self.lease)

    def publish(self, outputs: Iterable[RewriteOutput], published: dict[int, RewriteOutput]) -> None:
        """Add outputs, which are in their places, to `published`."""
        published |= {output.number: output for output in outputs}
        self._published = {output.path for output in published.values()}

    def delete_unreferenced(self, unnamed: Iterable[RewriteOutput]) -> None:
        """Delete the outputs that no commit names, and those of tasks that reported none."""
        storage = Storage(self.files)
        named = self._published - {output.path for output in unnamed}

        def delete_in(folder: str) -> None:
            # What can't be listed or deleted now is left to VACUUM.
            with contextlib.suppress(CompactionKitError, OSError):
                for entry in self.store.entries(folder):
                    place = self.store.place(posixpath.join(folder, entry.name))
                    if self.run in entry.name and place not in named:
                        storage.delete(place)

        with ThreadPoolExecutor(_LISTINGS) as pool:
            list(pool.map(delete_in, set(self.folders.values())))


Staging = OnDisk | InStore


def staging_for(store: Store, folders: Mapping[int, str], run: str) -> Staging:
    """Return where the outputs of a run go, by the folder of each bin; their names have the run's id."""
    return OnDisk(store, folders, run) if isinstance(store, LocalStore) else InStore(store, folders, run)
