import pytest

from compaction_kit.errors import UnsupportedTableError
from compaction_kit.log.metadata import READER_FEATURES, Metadata, Protocol, check_readable
from tests import handmade


def test_every_known_reader_feature_is_let_in() -> None:
    check_readable(Protocol.of(handmade.protocol(features=sorted(READER_FEATURES))["protocol"]))


def test_writer_features_are_no_concern_of_a_reader() -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "newThing"]}
    check_readable(Protocol.of(protocol))


def test_all_unknown_features_are_told_at_once() -> None:
    with pytest.raises(UnsupportedTableError, match="aaa, zzz"):
        check_readable(Protocol.of(handmade.protocol(features=["zzz", "aaa"])["protocol"]))


def test_names_are_physical_only_under_column_mapping() -> None:
    action = handmade.metadata({"id": "long", "p": "date"}, ["p"])["metaData"]
    metadata = Metadata.of(action)
    assert metadata.physical_names == {"id": "id", "p": "p"}
    assert metadata.partition_columns == ("p",)
    assert metadata.column_types == {"id": "long", "p": "date"}
