"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from lowtide.errors import InputError


def write_whole(path: str | os.PathLike[str], data: str | bytes, what: str) -> None:
    """Write `data` under another name beside `path`, then give it its own.

    Args:
        what: the thing in the file, for the error: `'the plan'`.

    Raises:
        InputError: if the file cannot be written; what stood there before is as it was.
    """
    target = Path(path)
    content = data.encode() if isinstance(data, str) else data
    try:
        fd, tmp = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(tmp, 0o666 & ~umask)  # as any new file; mkstemp makes private ones
            with os.fdopen(fd, "wb") as f:
                f.write(content)
            os.replace(tmp, target)
        except BaseException:
            os.unlink(tmp)
            raise
    except OSError as e:
        raise InputError(f"cannot write {what} to {os.fspath(path)!r}: {e.strerror}") from e
