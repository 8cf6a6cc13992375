"""Paths of data files and deletion vectors, from what the log writes to what is on disk."""

import base64
import re
import uuid
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_RFC1924 = bytes.maketrans(_Z85, _RFC1924)
_UUID_LENGTH = 20
_OFFSET = re.compile(r"@\d+$")


def decode_paths(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Paths as on disk: the log writes them as URIs (protocol, "Add File and Remove File")."""
    if isinstance(paths, pa.ChunkedArray):
        paths = paths.combine_chunks()
    text = paths.buffers()[2]
    if text is None or not re.search(b"%", text):
        return paths
    encoded = pc.match_substring(paths, "%")
    decoded = pa.array([unquote(path) for path in paths.filter(encoded).to_pylist()], pa.string())
    return pc.replace_with_mask(paths, encoded, decoded)


def relative_to_table(decoded_path: str, table: Path) -> str:
    """A data file's path relative to its table; an absolute one elsewhere stays as it is."""
    if not decoded_path.startswith(("/", "file:")):
        return decoded_path
    path = Path(urlsplit(decoded_path).path if decoded_path.startswith("file:") else decoded_path)
    return str(path.relative_to(table)) if path.is_relative_to(table) else str(path)


def deletion_vector_file(vector_id: str | None, table: Path) -> str | None:
    """The file that a deletion vector is in, relative to its table; None for none or an inline one.

    Args:
        vector_id: storageType, pathOrInlineDv and @offset run together (protocol, "Deletion
            Vector Descriptor Schema").
        table: The table's folder.
    """
    if not vector_id or vector_id[0] == "i":
        return None
    body = _OFFSET.sub("", vector_id[1:])
    if vector_id[0] == "p":
        return relative_to_table(unquote(body), table)
    encoded = body[-_UUID_LENGTH:].encode()
    name = f"deletion_vector_{uuid.UUID(bytes=base64.b85decode(encoded.translate(_TO_RFC1924)))}.bin"
    prefix = body[:-_UUID_LENGTH]
    return f"{prefix}/{name}" if prefix else name
