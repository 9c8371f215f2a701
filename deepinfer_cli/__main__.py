"""The process: runs a command and turns whatever happens into an exit code and at most two lines."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from deepinfer_cli.streams import fill_closed_descriptors


def _usage_error(error: Any, args: Sequence[str]) -> Exception:
    """Typer's complaint about the command line, in our words."""
    from difflib import get_close_matches

    from deepinfer_cli.app import COMMANDS
    from deepinfer_cli.errors import UsageError

    command = next((a for a in args if not a.startswith("-")), "")
    path = f"deepinfer {command}" if command in COMMANDS else "deepinfer"
    message = error.message.rstrip(".") if type(error).__name__ == "NoSuchOption" else error.format_message()
    message = " ".join(message.replace("Value error, ", "").split()).rstrip(".")  # pydantic's words
    possibilities = getattr(error, "possibilities", None)  # of NoSuchOption, best last
    if possibilities:
        close = get_close_matches(error.option_name, possibilities, n=1) or sorted(possibilities)
        hint = f"did you mean {close[0]}?"
    elif path == "deepinfer" and (close := get_close_matches(command, COMMANDS, n=1)):
        hint = f"did you mean `deepinfer {close[0]}`?"
    else:
        hint = f"`{path} --help` lists what there is"
    return UsageError(message[:1].lower() + message[1:], hint)


def run_command(args: Sequence[str], console: Any) -> int:
    """Dispatch to the command; its exit code. Raises what the command raised."""
    from typer.core import TyperCommand, TyperGroup
    from typer.exceptions import Abort, TyperException
    from typer.main import get_command

    from deepinfer_cli.app import COMMANDS, app, load_command
    from deepinfer_cli.commands.completion import COMPLETION_VARIABLE
    from deepinfer_cli.errors import Interrupted

    if COMPLETION_VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    # Straight to the command: the group would convert its own options first, at twice the start-up time.
    if args and args[0] in COMMANDS:
        command, rest, name = load_command(args[0]), args[1:], f"deepinfer {args[0]}"
    else:
        command, rest, name = get_command(app), args, "deepinfer"
    assert isinstance(command, TyperCommand | TyperGroup)
    try:
        code = command.main(list(rest), prog_name=name, standalone_mode=False, obj=console)
    except Abort:
        raise Interrupted("interrupted") from None
    except TyperException as e:
        raise _usage_error(e, args) from None
    return code if isinstance(code, int) else 0


def _say_where(error: BaseException, console: Any, *, whole: bool) -> None:
    """The traceback, when asked for; otherwise the last place of it, for -v and the log file."""
    import traceback

    if whole:
        traceback.print_exception(error)
        return
    for frame in traceback.extract_tb(error.__traceback__)[-1:]:
        console.debug(f"at {frame.filename}:{frame.lineno} in {frame.name}")


def _leave_stdout_quietly() -> None:
    """The reader is gone: keep the interpreter from complaining about it when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _raise_on_terminate() -> Any:
    """SIGTERM ends a command like Ctrl-C does: with cleaning up, and its own exit code. Returns the handler
    before, None when it stays (ignored by the parent, or not the main thread)."""
    from deepinfer_cli.errors import Terminated

    def terminate(*_: object) -> None:
        raise Terminated("terminated")

    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        return None
    try:
        return signal.signal(signal.SIGTERM, terminate)
    except ValueError:
        return None


def _leave_at_once_if_stuck(code: int) -> None:
    """An engine that does not come back from its step would keep the interpreter from ending."""
    native = sys.modules.get("deepinfer_cli.engine.native")
    if native is not None and native.is_stuck():
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command line; the exit code."""
    try:
        stdout_open = fill_closed_descriptors()
        from deepinfer_cli.console import Console, report
        from deepinfer_cli.errors import EXIT_BROKEN_PIPE, InternalError, describe

        console = Console(stdout_open=stdout_open)
        previous = _raise_on_terminate()
    except KeyboardInterrupt:  # while the program loads there is nothing to tidy up, and nobody to say so
        return 128 + signal.SIGINT
    debug = bool(os.environ.get("DEEPINFER_DEBUG"))
    try:
        code = run_command(sys.argv[1:] if args is None else args, console)
        if sys.stdout is not None:  # None in a process that was started without a stdout
            sys.stdout.flush()
    except BaseException as e:
        if isinstance(e, BrokenPipeError) or isinstance(e.__context__, BrokenPipeError):
            _leave_stdout_quietly()  # Typer turns a broken pipe into SystemExit(1), hence the context
            _leave_at_once_if_stuck(EXIT_BROKEN_PIPE)
            return EXIT_BROKEN_PIPE
        if isinstance(e, SystemExit):
            return e.code if isinstance(e.code, int) else 1
        failure = describe(e)
        if debug or isinstance(failure, InternalError):
            _say_where(e, console, whole=debug)
        code = report(console, failure)
    finally:
        console.close()
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
    _leave_at_once_if_stuck(code)
    return code


def run_process() -> NoReturn:
    """Entry point of the `deepinfer` command: a process that makes most of its objects at the start and keeps
    them, so that looking for garbage among them is time lost."""
    gc.set_threshold(20_000)  # new objects between two looks; 700 is made for small heaps
    code = main()
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    run_process()
