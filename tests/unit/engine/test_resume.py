"""--resume in input order: whatever a crash leaves, the end is the bytes of one uninterrupted run."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepinfer_cli.engine import native
from deepinfer_cli.errors import OutputError
from deepinfer_cli.results import ordered, output_file, unordered
from deepinfer_cli.results.durable import rename_over
from deepinfer_cli.results.records import Record
from tests.support.resuming import Folder, mixed_rows


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return Folder(tmp_path, monkeypatch)


def whole_run(folder: Folder, rows: int = 12) -> bytes:
    folder.write(mixed_rows(rows))
    assert folder.run().code == 3
    return folder.out.read_bytes()


@pytest.mark.slow
def test_cut_at_every_byte(folder: Folder) -> None:
    folder.write(mixed_rows(4)[1:])
    folder.run()
    whole = folder.out.read_bytes()
    for cut in range(len(whole) + 1):
        folder.out.write_bytes(whole[:cut])
        assert folder.resume().code == 3
        assert folder.out.read_bytes() == whole, cut


def test_a_missing_or_empty_output_is_a_fresh_run(folder: Folder) -> None:
    whole = whole_run(folder)
    for make in (folder.out.unlink, lambda: folder.out.write_bytes(b"")):
        make()
        folder.run_file.unlink()
        assert folder.resume().code == 3
        assert folder.out.read_bytes() == whole
        assert len(folder.attempts()) == 1


@pytest.mark.parametrize("zeros", [1, 511, 4096, 10000])
def test_zeros_are_what_a_power_loss_left(folder: Folder, zeros: int) -> None:
    whole = whole_run(folder)
    lines = whole.splitlines(keepends=True)
    head, cut = b"".join(lines[:4]), lines[4][:50]
    torn = (
        head + b"\0" * zeros,  # after a whole line
        head + cut + b"\0" * zeros,  # in a torn one
        head[:-1] + b"\0" * zeros,  # the newline itself never arrived
        head + b"\0" * zeros + cut,  # pages before the tail are lost
        head + b"\0" * zeros + lines[5][20:] + b"".join(lines[6:8]),  # whole rows behind lost pages
        lines[0] + b"\0" * zeros + b"\n" + lines[2] + lines[3],
        b"\0" * max(zeros, 512),
        b"\0" * max(zeros, 512) + b"\n" + lines[2],
    )
    for number, data in enumerate(torn):
        folder.out.write_bytes(data)
        ran = folder.resume()
        assert ran.code == 3, ran.said
        assert folder.out.read_bytes() == whole, number
        assert not folder.leftovers()


@pytest.mark.parametrize(
    "change",
    [
        lambda line: b"not json",
        lambda line: line[:-20],
        lambda line: line + b"}",
        lambda line: b"",
        lambda line: line.replace(b'"request_hash"', b'"request_mash"'),
        lambda line: b'{"id":7}',
        lambda line: line.replace(b'"code":"bad_param"', b'"code":["bad_param"]'),
        lambda line: line.replace(b'"error":{', b'"error":{"line":"x",'),
    ],
)
def test_damage_inside_is_refused_with_its_line(folder: Folder, change: object) -> None:
    whole = whole_run(folder)
    lines = whole.split(b"\n")
    lines[3] = change(lines[3])  # type: ignore[operator]
    damaged = b"\n".join(lines)
    folder.out.write_bytes(damaged)
    for force in (False, True):
        ran = folder.resume(force=force)
        assert ran.code == 2 and ("out.jsonl:4:" in ran.said or "index 3" in ran.said), ran.said
        assert folder.out.read_bytes() == damaged
    damaged += b'{"id":'
    folder.out.write_bytes(damaged)
    assert folder.resume().code == 2
    assert folder.out.read_bytes() == damaged


@pytest.mark.parametrize(
    "data", [b"hello", b"hello\n", b"\x7fELF\0\0\0\0", b"{}", b'{"a": 1}', b"\0\0\0 ftyp"]
)
def test_somebody_elses_file_is_left_alone(folder: Folder, data: bytes) -> None:
    whole_run(folder)
    folder.out.write_bytes(data)
    assert folder.resume().code == 2
    assert folder.out.read_bytes() == data


def test_appended_rows_are_run(folder: Folder) -> None:
    rows = mixed_rows(20)
    folder.write(rows)
    folder.run()
    whole = folder.out.read_bytes()
    folder.out.unlink()
    folder.write(rows[:7])
    folder.run()
    folder.write(rows)
    assert folder.resume().code == 3
    assert folder.out.read_bytes() == whole


def test_changed_removed_and_moved_rows_are_refused_by_name(folder: Folder) -> None:
    rows = [{"id": f"w{i}", "prompt": f"row {i}", "max_tokens": 3} for i in range(6)]
    folder.write(rows)
    folder.run()
    whole = folder.out.read_bytes()
    changed = [*rows[:2], {**rows[2], "prompt": "other"}, *rows[3:]]
    for new, place in (
        (changed, 'line 3: the row (id "w2") has changed'),
        ([*rows[:2], *rows[3:]], 'line 3: the row has id "w3", but its place in the output holds "w2"'),
        (
            [rows[1], rows[0], *rows[2:]],
            'line 1: the row has id "w1", but its place in the output holds "w0"',
        ),
        (rows[:4], 'holds a row (index 4, id "w4") that the input does not have'),
    ):
        folder.write(new)
        ran = folder.resume()
        assert ran.code == 2 and place in ran.said, ran.said
        assert folder.out.read_bytes() == whole
        assert folder.resume(force=True).code == 0
        forced = folder.out.read_bytes()
        folder.run(overwrite=True)
        assert folder.out.read_bytes() == forced
        assert not folder.leftovers()
        folder.out.write_bytes(whole)


def test_force_runs_only_what_changed(folder: Folder) -> None:
    rows = [{"id": f"w{i}", "prompt": f"row {i}", "max_tokens": 3} for i in range(6)]
    folder.write(rows)
    folder.run()
    rows[2]["prompt"] = "other"
    folder.write(rows)
    ran = folder.resume(force=True)
    assert ran.code == 0 and "5 rows are there already, 1 changed and run again" in ran.said


def test_other_settings_are_refused_by_name_and_forced(folder: Folder) -> None:
    whole = whole_run(folder)
    ran = folder.resume(temperature=0.5, include_stop=True)
    assert ran.code == 2
    assert "temperature: 1.0 -> 0.5" in ran.said and "include_stop: false -> true" in ran.said
    assert folder.out.read_bytes() == whole
    folder.run_file.unlink()
    ran = folder.resume(temperature=0.5)
    assert ran.code == 2 and "run file" in ran.said
    ran = folder.resume(temperature=0.5, force=True)
    assert ran.code == 3
    assert not folder.leftovers()
    forced = folder.out.read_bytes()
    folder.run(temperature=0.5, overwrite=True)
    assert folder.out.read_bytes() == forced != whole


def test_a_complete_run_starts_no_engine_and_touches_nothing(folder: Folder) -> None:
    whole = whole_run(folder)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.path.iterdir()}
    ran = folder.resume()
    assert ran.code == 3 and "nothing is left to do" in ran.said
    assert folder.num_engines == 1
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.path.iterdir()} == before
    assert folder.out.read_bytes() == whole


def test_the_summary_covers_all_attempts(folder: Folder) -> None:
    whole = whole_run(folder, 16)
    full = json.loads(folder.run_file.read_text())
    folder.out.write_bytes(b"".join(whole.splitlines(keepends=True)[:5]) + b'{"id"')
    content = json.loads(folder.run_file.read_text())
    content["attempts"][0] = {"started": content["attempts"][0]["started"], "status": "running"}
    folder.run_file.write_text(json.dumps(content))
    ran = folder.resume()
    resumed = json.loads(folder.run_file.read_text())
    assert resumed["counts"] == full["counts"]
    assert [(a["status"], a["rows"]) for a in resumed["attempts"]] == [("killed", 5), ("complete", 11)]
    assert "2 attempts" in ran.said and "16 rows:" in ran.said
    folder.run_file.unlink()
    folder.out.write_bytes(whole[:-1] + b'\n{"')
    assert folder.resume().code == 3
    assert folder.out.read_bytes() == whole


def test_killed_after_the_last_row_the_run_file_gets_its_counts(folder: Folder) -> None:
    whole_run(folder, 8)
    full = json.loads(folder.run_file.read_text())
    started = {"started": full["attempts"][0]["started"], "status": "running", "rows_before": 0}
    torn = {key: value for key, value in full.items() if key not in ("counts", "seconds")}
    folder.run_file.write_text(json.dumps({**torn, "attempts": [started]}))
    assert folder.resume().code == 3
    content = json.loads(folder.run_file.read_text())
    assert [(a["status"], a["rows"]) for a in content["attempts"]] == [("killed", 8)]
    for key in ("ok", "failed", "by_code", "output_tokens"):
        assert content["counts"][key] == full["counts"][key]
    again = folder.run_file.read_bytes()
    assert folder.resume().code == 3
    assert folder.run_file.read_bytes() == again


def test_attempts_without_a_row_are_listed_too(folder: Folder) -> None:
    whole = whole_run(folder)
    content = json.loads(folder.run_file.read_text())
    content["attempts"] = [{"started": content["attempts"][0]["started"], "status": "running"}]
    folder.run_file.write_text(json.dumps(content))
    folder.out.write_bytes(b"")
    assert folder.resume().code == 3
    assert folder.out.read_bytes() == whole
    assert [(a["status"], a["rows"]) for a in folder.attempts()] == [("killed", 0), ("complete", 12)]


@pytest.mark.parametrize("left", [b"", b'{"id":', b"\0" * 4096])
def test_an_empty_file_of_rows_run_again_goes_away(folder: Folder, left: bytes) -> None:
    whole = whole_run(folder)
    (folder.path / ".again.out.jsonl.jsonl").write_bytes(left)
    assert folder.resume().code == 3
    assert folder.out.read_bytes() == whole
    assert not folder.leftovers()


def test_rows_of_two_settings_in_one_file(folder: Folder) -> None:
    whole = whole_run(folder)
    folder.run(overwrite=True, temperature=0.5)
    other = folder.out.read_bytes().splitlines(keepends=True)
    mixed = b"".join(whole.splitlines(keepends=True)[:5] + other[5:])
    for order in ("input", "completion"):
        folder.out.write_bytes(mixed)
        ran = folder.resume(order=order)
        assert ran.code == 2 and "line 6: the row was written with settings" in ran.said
        assert folder.out.read_bytes() == mixed
        assert folder.resume(force=True, order=order).code == 3
        assert b"".join(by_index(folder.out)) == whole


def test_lost_run_file_is_written_again(folder: Folder) -> None:
    whole = whole_run(folder)
    folder.out.write_bytes(whole[:700])
    folder.run_file.write_text("{ torn")
    assert folder.resume().code == 3
    assert folder.out.read_bytes() == whole
    assert [a["status"] for a in folder.attempts()] == ["complete"]


def test_two_files_are_repaired_together(folder: Folder) -> None:
    folder.write(mixed_rows(16))
    errors = folder.path / "errors.jsonl"
    folder.settings = {"errors": str(errors)}
    folder.run()
    whole, whole_errors = folder.out.read_bytes(), errors.read_bytes()
    random_ = random.Random(5)
    cuts = [(random_.randrange(len(whole) + 1), random_.randrange(len(whole_errors) + 1)) for _ in range(60)]
    cuts += [(0, len(whole_errors)), (len(whole), 0), (0, 0), (len(whole), len(whole_errors))]
    for cut, cut_errors in cuts:
        folder.out.write_bytes(whole[:cut])
        errors.write_bytes(whole_errors[:cut_errors])
        assert folder.resume().code == 3
        assert (folder.out.read_bytes(), errors.read_bytes()) == (whole, whole_errors), (cut, cut_errors)
        assert not folder.leftovers()
    errors.unlink()
    assert folder.resume().code == 3
    assert (folder.out.read_bytes(), errors.read_bytes()) == (whole, whole_errors)


def test_rows_move_when_errors_get_a_file_of_their_own(folder: Folder) -> None:
    whole_run(folder, 16)
    errors = folder.path / "errors.jsonl"
    folder.run(overwrite=True, errors=str(errors))
    parts = folder.out.read_bytes(), errors.read_bytes()
    errors.unlink()
    folder.run(overwrite=True)
    assert folder.resume(errors=str(errors)).code == 3
    assert (folder.out.read_bytes(), errors.read_bytes()) == parts


def test_retryable_errors_are_retried_once_a_resume(folder: Folder) -> None:
    folder.write([{"id": i, "prompt": f"row {i}", "max_tokens": 4} for i in range(30)])
    folder.run()
    whole = folder.out.read_bytes()
    lines = whole.splitlines(keepends=True)
    failed = [_failed(line) if i in (0, 7, 8, 29) else line for i, line in enumerate(lines)]
    folder.out.write_bytes(b"".join(failed))
    ran = folder.resume()
    assert ran.code == 0 and "4 failed and are tried again" in ran.said
    assert folder.out.read_bytes() == whole
    assert not folder.leftovers()
    # With fewer rows than input and a torn tail as well.
    folder.out.write_bytes(b"".join(failed[:20]) + failed[20][:30])
    assert folder.resume().code == 0
    assert folder.out.read_bytes() == whole


def _failed(line: bytes) -> bytes:
    row = json.loads(line)
    error = {"code": "engine_error", "message": "lost", "field": None, "line": 1, "retryable": True}
    del row["usage"]
    row.update(status="error", outputs=[], error=error)
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def test_a_retry_that_fails_again_changes_no_byte(folder: Folder) -> None:
    folder.write([{"id": i, "prompt": f"row {i}", "max_tokens": 4} for i in range(10)])
    folder.lost = set(range(10))
    folder.run()
    failed = folder.out.read_bytes()
    assert {row["status"] for row in folder.rows()} == {"error"}
    retryable = {row["error"]["retryable"] for row in folder.rows()}
    assert retryable == {True}
    inode = folder.out.stat().st_ino
    for _ in range(3):
        assert folder.resume().code == 3
        assert folder.out.read_bytes() == failed
    assert folder.out.stat().st_ino == inode
    folder.lost = {2}
    assert folder.resume().code == 3
    assert [row["status"] for row in folder.rows()].count("error") == 1
    folder.lost = set()
    assert folder.resume().code == 0
    assert {row["status"] for row in folder.rows()} == {"ok"}


@pytest.mark.parametrize("settings", [{"shard": "1/3"}, {"on_duplicate": "first"}, {"on_duplicate": "keep"}])
def test_rows_without_output_rows(folder: Folder, settings: dict[str, object]) -> None:
    from deepinfer_cli.config.spec import Shard

    if "shard" in settings:
        settings = {"shard": Shard(1, 3)}
    rows = [{"id": f"w{i % 9}", "prompt": f"row {i}", "max_tokens": 3} for i in range(24)]
    rows.append({"id": "w0", "prompt": "the last one is a duplicate", "max_tokens": 3})
    folder.write(rows)
    folder.settings = dict(settings)
    code = folder.run().code
    whole = folder.out.read_bytes()
    for cut in range(0, len(whole), 61):
        folder.out.write_bytes(whole[:cut])
        assert folder.resume().code == code
        assert folder.out.read_bytes() == whole
    engines = folder.num_engines
    assert folder.resume().code == code
    assert folder.num_engines == engines


def test_another_shard_is_refused(folder: Folder) -> None:
    from deepinfer_cli.config.spec import Shard

    folder.write([{"id": i, "prompt": f"row {i}", "max_tokens": 3} for i in range(9)])
    folder.run(shard=Shard(0, 3))
    whole = folder.out.read_bytes()
    ran = folder.resume(shard=Shard(1, 3))
    assert ran.code == 2 and "another shard" in ran.said
    assert folder.out.read_bytes() == whole


def test_a_smaller_limit_is_refused_a_larger_one_runs(folder: Folder) -> None:
    whole = whole_run(folder)
    lines = whole.splitlines(keepends=True)
    assert folder.resume(limit=4).code == 2
    assert folder.out.read_bytes() == whole
    folder.out.write_bytes(b"".join(lines[:4]))
    assert folder.resume(limit=6).code == 3
    assert folder.out.read_bytes() == b"".join(lines[:6])


def test_a_row_too_large_is_known_by_its_bytes(folder: Folder) -> None:
    long = json.dumps({"id": "long", "prompt": "x" * 5000})
    folder.write([{"id": 1, "prompt": "a", "max_tokens": 2}, long, {"id": 2, "prompt": "b", "max_tokens": 2}])
    folder.settings = {"max_row_bytes": 2000}
    assert folder.run().code == 3
    whole = folder.out.read_bytes()
    folder.out.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert folder.resume().code == 3
    assert folder.out.read_bytes() == whole
    folder.write([{"id": 1, "prompt": "a", "max_tokens": 2}, long.replace("xxx", "yxx", 1)])
    ran = folder.resume()
    assert ran.code == 2 and "line 2" in ran.said


@pytest.mark.parametrize("shape", ["native", "openai"])
def test_several_inputs_in_both_shapes(folder: Folder, shape: str) -> None:
    parts = []
    for name, start in (("a", 0), ("b", 5), ("c", 9)):
        part = folder.path / f"{name}.jsonl"
        part.write_bytes(b"\xef\xbb\xbf\n" if name == "b" else b"")
        rows = [json.dumps({"id": i, "prompt": f"row {i}", "max_tokens": 3}) for i in range(start, start + 4)]
        part.write_text(part.read_text() + "\n\n".join(rows))
        parts.append(part)
    folder.settings = {"output_format": shape, "id_prefix": "file"}
    assert folder.run(inputs=parts).code == 0
    whole = folder.out.read_bytes()
    for cut in range(0, len(whole), 97):
        folder.out.write_bytes(whole[:cut])
        assert folder.resume(inputs=parts).code == 0
        assert folder.out.read_bytes() == whole
    folder.settings = {"output_format": shape}
    folder.run(inputs=parts[:1], overwrite=True)
    ran = folder.resume(inputs=parts)
    assert ran.code == 2 and "one input" in ran.said


def test_one_process_a_file(folder: Folder) -> None:
    whole = whole_run(folder)
    folder.out.write_bytes(whole[:800])
    with folder.out.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for ran in (folder.resume(), folder.run(overwrite=True)):
            assert ran.code == 2 and "another deepinfer" in ran.said
            assert folder.out.read_bytes() == whole[:800]
    assert folder.resume().code == 3
    assert folder.out.read_bytes() == whole


def test_a_link_stays_a_link_and_permissions_stay(folder: Folder) -> None:
    folder.write([{"id": i, "prompt": f"row {i}", "max_tokens": 4} for i in range(6)])
    folder.run()
    whole = folder.out.read_bytes()
    real = folder.path / "elsewhere" / "rows.jsonl"
    real.parent.mkdir()
    lines = whole.splitlines(keepends=True)
    real.write_bytes(_failed(lines[0]) + b"".join(lines[1:]))
    real.chmod(0o600)
    folder.out.unlink()
    folder.out.symlink_to(real)
    assert folder.resume().code == 0
    assert folder.out.is_symlink() and real.read_bytes() == whole
    assert real.stat().st_mode & 0o777 == 0o600
    assert folder.resume(temperature=0.25, force=True).code == 0
    assert folder.out.is_symlink() and {p.name for p in real.parent.iterdir()} == {"rows.jsonl"}


DAMAGE = st.tuples(
    st.integers(0, 1 << 20),  # where the output is cut
    st.integers(0, 1 << 20),  # and the error file
    st.sampled_from([0, 0, 1, 600, 5000]),  # zeros behind that
    st.sets(st.integers(0, 11), max_size=4),  # requests that are lost when it goes on
    st.sets(st.integers(0, 23), max_size=3),  # rows that hold an error worth a retry
    st.sampled_from(["", "errors", "output"]),  # a file that is gone
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chain=st.lists(DAMAGE, min_size=1, max_size=4), split=st.booleans())
def test_any_chain_of_damage_ends_in_the_same_bytes(folder: Folder, chain: list[Any], split: bool) -> None:
    folder.write(mixed_rows(24))
    errors = folder.path / "errors.jsonl"
    folder.settings = {"errors": str(errors) if split else None}
    folder.lost = set()
    files = [folder.out, errors] if split else [folder.out]
    folder.run(overwrite=True)
    whole = [file.read_bytes() for file in files]
    for cut, cut_errors, zeros, lost, failed, gone in chain:
        for file, place in zip(files, (cut, cut_errors), strict=False):
            data = file.read_bytes()
            lines = data.splitlines(keepends=True)
            if file is not errors and not split:
                lines = [
                    _failed(x) if json.loads(x)["index"] in failed and b'"ok"' in x else x for x in lines
                ]
            data = b"".join(lines)
            file.write_bytes(data[: place % (len(data) + 1)] + b"\0" * zeros)
        if split and gone:
            (errors if gone == "errors" else folder.out).unlink()
        folder.lost = lost
        assert folder.resume().code == 3
        assert not folder.leftovers()
    folder.lost = set()
    assert folder.resume().code == 3
    assert [file.read_bytes() for file in files] == whole


@pytest.mark.parametrize("order", ["input", "completion"])
@pytest.mark.parametrize("step", [0, 1])
def test_a_merge_may_end_at_any_rename(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, order: str, step: int
) -> None:
    rows = [{"id": i, "prompt": f"row {i}", "max_tokens": 4} for i in range(12)]
    rows[5]["temperature"] = -1
    folder.write(rows)
    errors = folder.path / "errors.jsonl"
    folder.settings = {"order": order, "errors": str(errors)}
    folder.run()
    whole = by_index(folder.out), errors.read_bytes()
    folder.lost = {2, 3, 9}
    folder.run(overwrite=True)
    assert len(by_index(errors)) == 4
    folder.lost = set()
    calls = []

    def dying(beside: str, target: str) -> None:
        calls.append(target)
        if len(calls) > step:
            raise OutputError("the power is gone")
        rename_over(beside, target)

    with monkeypatch.context() as patched:
        for module in (ordered, unordered):
            patched.setattr(module, "rename_over", dying)
        assert folder.resume().code == 1
    assert folder.resume().code == 3
    assert (by_index(folder.out), errors.read_bytes()) == whole
    assert not folder.leftovers()


def test_a_forced_rerun_goes_on_where_it_was_killed(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write(mixed_rows(16))
    folder.run(temperature=0.5)
    wanted = folder.out.read_bytes()
    folder.run(overwrite=True)
    whole = folder.out.read_bytes()
    staged = folder.path / ".forced.out.jsonl"
    for data in (wanted[:1500], wanted, whole[:900]):  # torn, complete, and of yet other settings
        staged.write_bytes(data)
        assert folder.resume(temperature=0.5).code == 2
        assert folder.out.read_bytes() == whole
        ran = folder.resume(temperature=0.5, force=True)
        assert ran.code == 3, ran.said
        assert folder.out.read_bytes() == wanted
        assert not folder.leftovers()
        assert ("there already" in ran.said) == (data != whole[:900])
        folder.out.write_bytes(whole)


def test_another_build_of_the_same_numerics_goes_on(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = whole_run(folder)
    build = {"version": "0.2.0", "commit": "abc", "compiler": "gcc 14"}
    for damaged in (False, True):
        folder.out.write_bytes(whole[:900])
        with monkeypatch.context() as patched:
            patched.setattr(native, "build_info", lambda: build)
            ran = folder.resume()
            assert ran.code == 3 and ("another build goes on" in ran.said) is not damaged
        assert folder.out.read_bytes() == whole
        folder.run_file.write_text('{"schema_version": 1, "numerics": [], "attempts": {}, "settings": 3}')
    monkeypatch.setattr(native, "NUMERICS_VERSION", native.NUMERICS_VERSION + 1)
    assert folder.resume().code == 2


# ---- compressed --------------------------------------------------------------------------------------------


def content(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()


def packed(path: Path, members: list[bytes]) -> bytes:
    make = gzip.compress if path.suffix == ".gz" else zstandard.ZstdCompressor(write_checksum=True).compress
    return b"".join(map(make, members))


@pytest.mark.parametrize("name", ["out.jsonl.gz", "out.jsonl.zst"])
def test_compressed_outputs_lose_at_most_their_last_part(folder: Folder, name: str) -> None:
    folder.out_name = name
    folder.write(mixed_rows(12))
    folder.run()
    whole = content(folder.out)
    lines = whole.splitlines(keepends=True)
    parts = [b"".join(lines[:3]), b"".join(lines[3:4]), b"".join(lines[4:9])]
    stored = packed(folder.out, parts)
    ends = [len(packed(folder.out, parts[:n])) for n in range(4)]
    for cut in (*ends, *(end + 1 for end in ends[:-1]), *range(0, len(stored), 131), len(stored) - 1):
        for zeros in (0, 100, 5000):
            if cut or zeros == 0:
                folder.out.write_bytes(stored[:cut] + b"\0" * zeros)
                ran = folder.resume()
                assert ran.code == 3, ran.said
                assert content(folder.out) == whole
    folder.out.write_bytes(stored[: ends[1]] + bytes(4096) + stored[ends[1] + 100 :])
    assert folder.resume().code == 3
    assert content(folder.out) == whole


@pytest.mark.parametrize("name", ["out.jsonl.gz", "out.jsonl.zst"])
def test_damaged_archives_and_other_files_are_refused(folder: Folder, name: str) -> None:
    folder.out_name = name
    folder.write(mixed_rows(12))
    folder.run()
    whole = folder.out.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    other = packed(folder.out, [b"some text that is no row\n" * 20_000])
    for data in (flipped, b"plain text\n", other, other[:-7], packed(folder.out, [content(folder.out)[:-1]])):
        folder.out.write_bytes(data)
        ran = folder.resume()
        assert ran.code == 2, ran.said
        assert folder.out.read_bytes() == data


def test_compressed_rows_reach_the_file_while_the_run_goes_on(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_file, "_MEMBER_SECONDS", 0.0)
    folder.out_name = "out.jsonl.gz"
    # More rows than the engine takes at once, so that they cannot all be written in one go.
    folder.write([{"id": i, "prompt": f"row {i}", "max_tokens": 2} for i in range(1000)])
    folder.run(fsync=None)
    assert folder.out.read_bytes().count(b"\x1f\x8b\x08") > 1
    whole = content(folder.out)
    folder.out.write_bytes(folder.out.read_bytes()[:-9])
    assert folder.resume(fsync=0.0).code == 0
    assert content(folder.out) == whole


# ---- order of completion -----------------------------------------------------------------------------------


def by_index(*paths: Path) -> list[bytes]:
    """The rows of the files, sorted; each whole and none twice."""
    lines = [line for path in paths for line in path.read_bytes().splitlines(keepends=True)]
    lines.sort(key=lambda line: int(json.loads(line)["index"]))
    indices = [json.loads(line)["index"] for line in lines]
    assert len(set(indices)) == len(indices)
    return lines


def test_completion_order_ends_with_one_row_each(folder: Folder) -> None:
    folder.write(mixed_rows(40))
    errors = folder.path / "errors.jsonl"
    folder.settings = {"order": "completion", "errors": str(errors)}
    assert folder.run().code == 3
    whole = by_index(folder.out, errors)
    full = json.loads(folder.run_file.read_text())["counts"]
    random_ = random.Random(9)
    for attempt in range(30):
        rows = [_failed(line) if random_.random() < 0.1 and b'"ok"' in line else line for line in whole]
        random_.shuffle(rows)
        good = b"".join(line for line in rows if b'"status":"ok"' in line)
        bad = b"".join(line for line in rows if b'"status":"error"' in line)
        folder.out.write_bytes(good[: random_.randrange(len(good) + 1)] + b"\0" * random_.choice((0, 0, 700)))
        errors.write_bytes(bad[: random_.randrange(len(bad) + 1)])
        ran = folder.resume()
        assert ran.code == 3, ran.said
        assert by_index(folder.out, errors) == whole, attempt
        assert json.loads(folder.run_file.read_text())["counts"] == full
        engines = folder.num_engines
        assert folder.resume().code == 3
        assert folder.num_engines == engines


def test_completion_order_supersedes_what_stands_twice(folder: Folder) -> None:
    folder.write([{"id": i, "prompt": f"row {i}", "max_tokens": 4} for i in range(20)])
    folder.settings = {"order": "completion"}
    folder.run()
    whole = by_index(folder.out)
    # Killed after rows were tried again and before the file was written anew.
    folder.out.write_bytes(b"".join(map(_failed, whole[:5])) + b"".join(reversed(whole)))
    assert folder.resume().code == 0
    assert by_index(folder.out) == whole
    folder.out.write_bytes(b"".join(whole) + b"".join(map(_failed, whole[:5])) + whole[3][:40])
    assert folder.resume().code == 0
    assert by_index(folder.out) == whole


def test_completion_order_refuses_and_forces_the_same(folder: Folder) -> None:
    rows = [{"id": f"w{i}", "prompt": f"row {i}", "max_tokens": 3} for i in range(8)]
    folder.settings = {"order": "completion"}
    folder.write(rows)
    folder.run()
    whole = folder.out.read_bytes()
    for new, place in (
        ([*rows[:2], {**rows[2], "prompt": "other"}, *rows[3:]], 'line 3: the row (id "w2") has changed'),
        ([*rows[:2], *rows[3:]], 'line 3: the row has id "w3", but its place in the output holds "w2"'),
        (rows[:5], 'holds a row (index 5, id "w5") that the input does not have'),
    ):
        folder.write(new)
        ran = folder.resume()
        assert ran.code == 2 and place in ran.said, ran.said
        assert folder.out.read_bytes() == whole
        assert folder.resume(force=True).code == 0
        forced = by_index(folder.out)
        folder.run(overwrite=True)
        assert by_index(folder.out) == forced
        folder.out.write_bytes(whole)


def test_an_output_out_of_order_says_how_to_go_on(folder: Folder) -> None:
    folder.write([{"id": i, "prompt": f"row {i}", "max_tokens": 3} for i in range(8)])
    folder.run()
    lines = folder.out.read_bytes().splitlines(keepends=True)
    folder.out.write_bytes(b"".join([lines[2], lines[0], lines[1]]))
    ran = folder.resume()
    assert ran.code == 2 and "--order completion" in ran.said
    assert folder.resume(order="completion").code == 0
    assert by_index(folder.out) == lines
    folder.run(overwrite=True)
    folder.out.write_bytes(b"".join(lines[:3]))
    assert folder.resume(order="completion").code == 0


@pytest.mark.parametrize("index", ["9999999999", "999999999999999999"])
def test_an_index_beyond_all_sense(folder: Folder, index: str) -> None:
    folder.write([{"id": i, "prompt": f"row {i}", "max_tokens": 3} for i in range(3)])
    folder.settings = {"order": "completion"}
    folder.run()
    data = folder.out.read_bytes().replace(b'"index":1,', b'"index":%s,' % index.encode())
    folder.out.write_bytes(data)
    assert folder.resume().code == 2
    assert folder.out.read_bytes() == data


def test_the_table_takes_17_bytes_a_row(folder: Folder) -> None:
    from deepinfer_cli.results.ordered import OutputPaths
    from deepinfer_cli.results.unordered import _SLOT, DoneTable

    assert _SLOT.size == 17
    table = DoneTable(OutputPaths(str(folder.out), None), "", (3, 1000))
    assert table._offset(3 + 1000 * 5, "x") == 5 * 17  # a shard's rows lie close together
    for slot in (1, 1023, 1024, 5000, 1 << 20):  # it grows, also by far
        record = Record(b"", 3 + 1000 * slot, b"7", "aa", "", False, False, False, {})
        table._add(0, slot, record, str(folder.out))
    assert [table.take(3 + 1000 * slot) is not None for slot in (1, 2, 1024, 5000, 1 << 20)] == [
        True,
        False,
        True,
        True,
        True,
    ]
    table.close()


def test_damage_in_the_error_file_is_refused_too(folder: Folder) -> None:
    folder.write(mixed_rows(16))
    errors = folder.path / "errors.jsonl"
    folder.settings = {"errors": str(errors)}
    folder.run()
    whole, lines = folder.out.read_bytes(), errors.read_bytes().split(b"\n")
    errors.write_bytes(b"\n".join([lines[0], lines[1][:-9], *lines[2:]]))
    folder.out.write_bytes(whole[:-40])  # torn, and stays so
    before = errors.read_bytes()
    for order in ("input", "completion"):
        ran = folder.resume(order=order)
        assert ran.code == 2 and "errors.jsonl:2:" in ran.said
        assert (folder.out.read_bytes(), errors.read_bytes()) == (whole[:-40], before)
