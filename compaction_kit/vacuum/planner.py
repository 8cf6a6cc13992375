"""Decide as VACUUM does what would go, and tell of every file why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from compaction_kit.errors import InvalidArgumentError
from compaction_kit.folder import Folder, look_through
from compaction_kit.history.content import Compare, read_content
from compaction_kit.history.expiry import to_millis
from compaction_kit.history.readable import read_readability
from compaction_kit.log import TransactionLog
from compaction_kit.log.metadata import Metadata
from compaction_kit.retention import table_retention
from compaction_kit.times import millis, now
from compaction_kit.vacuum.cost import Cost
from compaction_kit.vacuum.directories import DIRECTORIES, listed_directories
from compaction_kit.vacuum.keep import check_versions, needed_by
from compaction_kit.vacuum.plan import VacuumPlan
from compaction_kit.vacuum.references import References, read_references
from compaction_kit.vacuum.sorting import FULL, LITE, sort_out
from compaction_kit.vacuum.streams import Stream, at_risk
from compaction_kit.vacuum.tables import files_table, kept_table, storage_table
from compaction_kit.vacuum.window import Conf, choose_retention

# Whether VACUUM commits its start and its end, which it does on a local disk unless this says no.
_LOGGING = "spark.databricks.delta.vacuum.logging.enabled"


@dataclass(frozen=True)
class Session:
    """What of a session bears on a vacuum.

    Attributes:
        conf: Its settings.
        guard: Whether Delta's guard is on.
        streams: Finds the streams that read the table, by the id in its metadata.
    """

    conf: Conf = field(default=lambda key: None)
    guard: bool = True
    streams: Callable[[str], Sequence[Stream]] = field(default=lambda table_id: ())


def plan_vacuum(
    table: Path,
    log: TransactionLog,
    session: Session,
    retention: str | None = None,
    keep_versions: Sequence[int] | None = None,
    mode: str = FULL,
    at: datetime | None = None,
    runner: Callable[..., Any] | None = None,
    compare: Compare | None = None,
) -> VacuumPlan:
    """Preview VACUUM: by the log, the folder and the clock, as VacuumCommand.gc decides.

    FULL takes each file that no live file and no tombstone younger than the retention names, and
    that was itself written before that. Hidden files and folders stay. LITE takes the same of the
    files that commits have removed, and looks at no others.

    Args:
        table: The table's folder.
        log: Its log.
        session: What of the session bears on it.
        retention: How long removed files are kept: "168 hours", "7 days". None: the table's
            property delta.deletedFileRetentionDuration, or a week. A longer one keeps more, though
            Delta itself has ignored RETAIN since 4.1: the plan is run file by file.
        keep_versions: Versions of which no file may go.
        mode: "FULL" or "LITE".
        at: When VACUUM would run, with its zone; None for now.
        runner: What runs the plan.
        compare: Tells by reading whether versions have the same rows; None: by the log alone.

    Raises:
        InvalidArgumentError: The retention can't be read, or Delta refuses it; a version to keep
            can't be read already; the mode is unknown, or Delta refuses LITE, for commits are gone.
    """
    mode = _checked_mode(mode)
    snapshot = log.snapshot()
    metadata = snapshot.metadata
    chosen, moment = choose_retention(metadata, retention, session.conf), at or now()
    cutoff = millis(moment) - to_millis(chosen)
    folder = look_through(table, metadata.partition_columns, _has_iceberg(metadata))
    state = read_readability(table, log, session.guard, folder.files)
    keep = check_versions(state, keep_versions)
    references = read_references(snapshot, table)
    sorted_out = sort_out(table, metadata, folder, references, needed_by(state, keep), mode, cutoff)
    files = files_table(sorted_out.going, table, references, state)
    paths = files["path"].combine_chunks()
    directories = _directories(folder, references, mode, cutoff)
    runs = bool(len(files)) or bool(pc.any(directories["is_empty"]).as_py())
    cost = Cost.of(state, paths, runs and (session.conf(_LOGGING) or "true").lower() != "false")
    content = read_content(log, compare) if cost.lost else None
    spares = cost.survivors(content) if content else {}
    claims = cost.claims(content) if content else {}
    return VacuumPlan(
        version=snapshot.version,
        table_id=metadata.id,
        mode=mode,
        at=moment,
        retention=chosen,
        table_retention=table_retention(metadata),
        keep_versions=keep,
        files=files,
        directories=directories,
        kept=kept_table(table, folder, sorted_out.stays),
        storage=storage_table(folder, references, state, paths),
        versions=cost.versions,
        versions_lost=cost.lost,
        blocked_versions_lost=cost.blocked_lost,
        content_survives_as={version: other for version, (other, _) in spares.items()},
        content_survives_by={version: evidence for version, (_, evidence) in spares.items()},
        content_claimed_as={version: other for version, other in claims.items() if version not in spares},
        gone_already=sorted_out.gone_already,
        warnings=(*cost.blocked(keep), *at_risk(session.streams(metadata.id), state.needs, paths)),
        runner=runner,
    )


def _directories(folder: Folder, references: References, mode: str, cutoff: int) -> pa.Table:
    if mode == LITE:
        return DIRECTORIES.empty_table()
    young = references.young(cutoff)
    young_data = young.filter(young["is_data"])["path"].combine_chunks()
    is_old = pc.less(folder.files["modification_time"], cutoff)
    old = folder.files.filter(is_old)["path"].combine_chunks()
    named = pa.concat_arrays([references.live_data, young_data])
    return listed_directories(folder.directories, old, named)


def _has_iceberg(metadata: Metadata) -> bool:
    return "iceberg" in metadata.configuration.get("delta.universalFormat.enabledFormats", "")


def _checked_mode(mode: str) -> str:
    known = mode.upper() if isinstance(mode, str) else None
    if known not in (FULL, LITE):
        raise InvalidArgumentError(f'mode={mode!r} is unknown: choose "FULL" or "LITE".')
    return known
