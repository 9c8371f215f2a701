"""Process of constraints/pool.py: reads jobs from standard input, answers on standard output.

A row that takes too long is ended by the kernel together with this process, wherever it hangs: the C code of
a regular expression looks at no flag. The time is the processor's, so that a busy machine ends no row.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any

from deepinfer_cli.constraints.types import CheckSpec
from deepinfer_cli.constraints.validate import Verdict, check_text

HEADER = struct.Struct("<Q")  # bytes of the pickle that follows
READY = "ready"
_STACK_BYTES = 512 << 20  # of address space: values nest as deep as a model writes them
_RECURSION = 200_000
_MEMORY_BYTES = 4 << 30
_STARTUP_SECONDS = 20.0  # of processor time

Job = tuple[CheckSpec, Sequence[str], float]  # texts of one row, seconds for all of them


def send(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, protocol=5)
    pipe.write(HEADER.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """None at the end of the pipe."""
    head = pipe.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    (size,) = HEADER.unpack(head)
    data = pipe.read(size)
    return pickle.loads(data) if len(data) == size else None


def _limit(seconds: float) -> None:
    """Processor seconds from now to the end of this process; 0 = none."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _serve(jobs: IO[bytes], answers: IO[bytes]) -> None:
    sys.setrecursionlimit(_RECURSION)
    _limit(_STARTUP_SECONDS)
    from deepinfer_cli.constraints import schema_check  # noqa: F401 - not in the first row's time

    _limit(0)
    send(answers, READY)
    while (job := receive(jobs)) is not None:
        check, texts, seconds = job
        _limit(seconds)
        verdicts: list[Verdict] = [check_text(check, text) for text in texts]
        _limit(0)
        send(answers, verdicts)


def main() -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever starts us ends us
    sys.set_int_max_str_digits(0)
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    bound = _MEMORY_BYTES if limit == resource.RLIM_INFINITY else min(_MEMORY_BYTES, limit)
    resource.setrlimit(resource.RLIMIT_AS, (bound, limit))
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=_work, daemon=True)
    thread.start()
    thread.join()
    os._exit(0)


def _work() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a print of some library is no answer
    try:
        _serve(sys.stdin.buffer, answers)
    except BrokenPipeError:
        pass
    except BaseException as error:
        send(answers, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
