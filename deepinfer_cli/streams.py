"""stdout belongs to the data. Whoever else writes to descriptor 1 (a C library, a child, a stray print)
ends up on stderr, so that rows are never mixed with talk.
"""

from __future__ import annotations

import os
import sys
from typing import BinaryIO, Final

_STDOUT: Final = 1
_STDERR: Final = 2


def fill_closed_descriptors() -> bool:
    """Open /dev/null on whichever of descriptors 0, 1, 2 is closed; True when stdout was open.

    A process started with `>&-` would otherwise get its next opened file as descriptor 1, and every
    message would be written into it.
    """
    stdout_open = True
    for fd in (0, _STDOUT, _STDERR):
        try:
            os.fstat(fd)
        except OSError:
            stdout_open = stdout_open and fd != _STDOUT
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
    return stdout_open


def take_stdout() -> BinaryIO:
    """The data stream: a private copy of descriptor 1, unbuffered; descriptor 1 itself becomes stderr.

    The copy is not inherited by children. Call it once; what was printed before is flushed first.
    """
    if sys.stdout is not None:
        sys.stdout.flush()
    data_fd = os.dup(_STDOUT)  # dup() makes it non-inheritable
    os.dup2(_STDERR, _STDOUT)
    return os.fdopen(data_fd, "wb", buffering=0)
