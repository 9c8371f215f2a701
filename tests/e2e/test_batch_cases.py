"""The batch cases: what each input file must give, through the real command with the built-in fake model.

Every expectation is a verdict per row: "ok" or an error code. Beyond the table, each case has a test of its
own where more than verdicts is promised.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import CASES, Finished, deepinfer, parse_rows, run_fake

# Cases whose feature has not landed yet. A name leaves this list together with the change that lands it;
# test_every_case_is_covered keeps it honest.
EXCEPTED: dict[str, str] = {}
# Cases with a test of their own elsewhere, and where.
ELSEWHERE = {
    "24": "test_case_24_... below",
    "25": "tests/bench/test_bench_command.py",
    "27": "tests/e2e/test_resume.py",
    "28": "tests/eval/test_scoring.py",
}


@dataclass(frozen=True)
class Case:
    file: str
    verdicts: tuple[str, ...]  # per output row: "ok" or the error code
    exit_code: int
    lines: tuple[int, ...] = ()  # physical lines of the error rows
    no_model: bool = False  # same verdicts under --validate and --dry-run
    args: tuple[str, ...] = ()


OK, BAD = "ok", "bad_param"
TABLE = [
    Case("01_plain.jsonl", (OK,) * 4, 0),
    Case("02_bom.jsonl", (OK,) * 2, 0, no_model=True),
    Case("03_crlf.jsonl", (OK,) * 3, 0, no_model=True),
    Case("04_blank_lines.jsonl", (OK, OK, "bad_json", OK), 3, lines=(7,), no_model=True),
    Case("05_unicode_separators.jsonl", (OK,) * 3, 0, no_model=True),
    Case("06_bad_middle_line.jsonl", (OK, OK, "bad_json", OK, OK), 3, lines=(3,), no_model=True),
    Case("07_duplicate_ids.jsonl", (OK, OK, "duplicate_id", "duplicate_id"), 3, lines=(3, 4), no_model=True),
    Case("07_duplicate_ids.jsonl", (OK,) * 4, 0, no_model=True, args=("--on-duplicate", "keep")),
    Case("07_duplicate_ids.jsonl", (OK,) * 2, 0, no_model=True, args=("--on-duplicate", "first")),
    Case("08_missing_ids.jsonl", (OK, OK, OK, OK, BAD), 3, lines=(5,), no_model=True),
    Case("09_big_numbers.jsonl", (OK, OK, BAD, OK), 3, lines=(3,), no_model=True),
    Case("10_nan_inf.jsonl", ("bad_json", "bad_json", "bad_json", OK, OK), 3, lines=(1, 2, 3), no_model=True),
    Case("11_surrogates.jsonl", (OK,) * 5, 0, no_model=True),
    Case(
        "12_empty_prompts.jsonl",
        ("missing_prompt", OK, "missing_prompt", OK, "missing_prompt", "missing_prompt", OK),
        3,
        lines=(1, 3, 5, 6),
    ),
    Case(
        "13_max_tokens_edges.jsonl",
        (BAD, OK, OK, BAD, BAD, OK, BAD, BAD, OK, BAD, OK),
        3,
        lines=(1, 4, 5, 7, 8, 10),
        no_model=True,
    ),
    Case(
        "14_too_long.jsonl",
        (OK, "context_overflow", OK, OK),
        3,
        lines=(2,),
        args=("--config", str(CASES / "14_too_long.yaml")),
    ),
    Case("15_stop_strings.jsonl", (OK, OK, BAD, BAD, BAD, OK, OK), 3, lines=(3, 4, 5)),
    Case("16_n_and_seed.jsonl", (OK, OK, OK, BAD, OK, BAD), 3, lines=(4, 6)),
    Case("17_schema_truncated.jsonl", ("constraint_truncated",) * 2, 3, lines=(1, 2)),
    Case(
        "18_schema_invalid.jsonl",
        ("bad_schema", "bad_schema", OK, "unsupported_schema", BAD, BAD, OK),
        3,
        lines=(1, 2, 4, 5, 6),
        no_model=True,
    ),
    Case("19_openai_envelope.jsonl", (OK, BAD, BAD, BAD, OK, OK), 3, lines=(2, 3, 4)),
    Case(
        "20_unknown_fields.jsonl",
        ("unknown_field", "unknown_field", OK, "unknown_field", OK),
        3,
        lines=(1, 2, 4),
        no_model=True,
    ),
    Case(
        "21_prompt_shape.jsonl",
        (BAD, "missing_prompt", BAD, BAD, BAD, BAD, BAD, BAD, OK),
        3,
        lines=(1, 2, 3, 4, 5, 6, 7, 8),
        no_model=True,
    ),
    Case("22_gzip.jsonl.gz", (OK,) * 6, 0),
    Case("22_gzip_wrong_suffix.jsonl", (OK,) * 6, 0),
    Case("23_gzip_truncated.jsonl.gz", (OK,) * 19, 1),
    Case("26_multi/part-*.jsonl", (OK, OK, OK, "duplicate_id"), 3, lines=(2,)),
    Case("26_multi/part-*.jsonl", (OK,) * 4, 0, args=("--id-prefix", "file")),
    Case("26_multi/part-002.jsonl", (), 0),
]


def verdict(row: dict[str, Any]) -> str:
    if row["status"] == "ok":
        return "ok"
    code = row["error"]["code"]
    assert isinstance(code, str)
    return code


def check_rows(case: Case, rows: list[dict[str, Any]]) -> None:
    assert tuple(map(verdict, rows)) == case.verdicts
    failed = [row for row in rows if row["status"] == "error"]
    assert tuple(row["error"]["line"] for row in failed) == case.lines
    for row in rows:
        assert isinstance(row["outputs"], list)
        keeps_texts = verdict(row) in ("ok", "constraint_truncated")
        assert keeps_texts == bool(row["outputs"])
        assert set(row.get("error", {})) in (set(), {"code", "message", "field", "line", "retryable"})


def case_id(case: Case) -> str:
    return " ".join((case.file, *case.args[:2]))


@pytest.mark.parametrize("case", TABLE, ids=case_id)
def test_case(case: Case) -> None:
    done = run_fake(*case.args, CASES / case.file)
    check_rows(case, done.rows)
    assert done.code == case.exit_code, done.stderr
    if "first" not in case.args:
        assert [row["index"] for row in done.rows] == list(range(len(case.verdicts)))


@pytest.mark.parametrize("mode", ["--validate", "--dry-run"])
@pytest.mark.parametrize("case", [c for c in TABLE if c.no_model], ids=case_id)
def test_case_without_a_model(case: Case, mode: str) -> None:
    model = ("--model", "fake") if mode == "--dry-run" else ("--model", "/nonexistent/model.gguf")
    done = deepinfer("run", mode, *model, *case.args, CASES / case.file)
    wanted = [(i, v) for i, v in enumerate(case.verdicts) if v != "ok"]
    assert [(row["index"], verdict(row)) for row in done.rows] == wanted
    assert done.code == case.exit_code


def test_every_case_is_covered() -> None:
    numbers = {path.name[:2] for path in CASES.iterdir()}
    tested = {case.file[:2] for case in TABLE} | set(ELSEWHERE)
    assert numbers - tested == set(EXCEPTED)


def by_id(done: Finished) -> dict[Any, dict[str, Any]]:
    return {row["id"]: row for row in done.rows}


def raw_line(done: Finished, index: int) -> str:
    return done.stdout.decode().split("\n")[index]


# ---- what a verdict does not show --------------------------------------------------------------------------


def test_case_1_ids_and_metadata() -> None:
    rows = run_fake(CASES / "01_plain.jsonl").rows
    assert [row["id"] for row in rows] == ["tide", "kiln", "env-1", "meta"]
    metadata = {"lab": "north", "shelf": 4, "tags": ["a", "b"], "nested": {"x": None}}
    assert rows[3]["metadata"] == metadata


def test_case_2_bom_is_dropped() -> None:
    assert run_fake(CASES / "02_bom.jsonl").rows[0]["id"] == "b1"


def test_case_3_no_carriage_returns_but_those_asked_for() -> None:
    done = run_fake(CASES / "03_crlf.jsonl")
    assert [row["id"] for row in done.rows] == ["c1", "c2", "c3"]
    shown = deepinfer("run", "--model", "fake", "--dry-run", "--show-tokens", CASES / "03_crlf.jsonl")
    prompts = [bytes(row["token_ids"]) for row in shown.rows]
    assert prompts[0] == b"Windows line one."
    assert prompts[1] == b"Windows line two, with \\r\\n kept inside?\r\nYes."


def test_case_5_line_like_characters_come_back_as_escapes() -> None:
    done = run_fake(CASES / "05_unicode_separators.jsonl")
    assert done.rows[0]["metadata"]["echo"] == "p\u2029q"
    assert '"p\\u2029q"' in raw_line(done, 0)


def test_case_6_strict_refuses_before_the_model() -> None:
    done = deepinfer("run", "--model", "/nonexistent.gguf", "--strict", CASES / "06_bad_middle_line.jsonl")
    assert done.code == 2
    assert done.stdout == b""
    assert "line 3" in done.stderr and "bad_json" in done.stderr
    assert "nonexistent" not in done.stderr


def test_case_6_strict_reads_stdin_too() -> None:
    data = (CASES / "06_bad_middle_line.jsonl").read_bytes()
    done = run_fake("--strict", "-", stdin=data)
    assert (done.code, done.stdout) == (2, b"")
    good = run_fake("--strict", "-", stdin=b"".join(data.splitlines(True)[:2]))
    assert good.code == 0 and len(good.rows) == 2


def test_case_7_names_the_first_line() -> None:
    rows = run_fake(CASES / "07_duplicate_ids.jsonl").rows
    assert all("line 1" in row["error"]["message"] for row in rows[2:])
    assert rows[3]["id"] == "same"


def test_case_8_ids() -> None:
    first, again = (run_fake(CASES / "08_missing_ids.jsonl").rows for _ in range(2))
    assert [row["id"] for row in first] == [row["id"] for row in again]
    assert first[0]["id_generated"] is True and first[2]["id_generated"] is True
    assert first[0]["id"] != first[2]["id"]
    assert first[1]["id"] == 7 and first[3]["id"] == "7"
    assert "id_generated" not in first[1]
    assert first[4]["id"] is None


def test_case_8_generated_ids_do_not_depend_on_the_line_number(tmp_path: Path) -> None:
    lines = (CASES / "08_missing_ids.jsonl").read_bytes().splitlines(True)
    shuffled = tmp_path / "shuffled.jsonl"
    shuffled.write_bytes(b"\n\n" + lines[2] + lines[1] + lines[0] + lines[0])
    rows = run_fake(shuffled).rows
    original = run_fake(CASES / "08_missing_ids.jsonl").rows
    assert rows[0]["id"] == original[2]["id"]
    assert rows[2]["id"] == original[0]["id"]
    assert rows[3]["id"] not in {row["id"] for row in original}  # second occurrence of the same content
    assert rows[2]["outputs"] == original[0]["outputs"]


def test_case_9_digits_survive() -> None:
    done = run_fake(CASES / "09_big_numbers.jsonl")
    assert '"id":98765432109876543210,' in raw_line(done, 0)
    error = done.rows[2]["error"]
    assert error["field"] == "seed" and "9223372036854775807" in error["message"]
    assert '"n": 12345678901234567890123, "f": 0.1, "e": 1e2, "z": -0.0' in raw_line(done, 3)
    assert done.rows[1]["outputs"][0]["seed"] == 2**63 - 1


def test_case_10_has_columns() -> None:
    rows = run_fake(CASES / "10_nan_inf.jsonl").rows
    assert all("column" in row["error"]["message"] for row in rows[:3])


def test_case_11_lone_surrogates_become_the_replacement_character() -> None:
    done = run_fake(CASES / "11_surrogates.jsonl")
    rows = done.rows
    warned = [[w["code"] for w in row["warnings"]] for row in rows]
    assert warned == [[], ["replaced_surrogate"], ["replaced_surrogate"], ["replaced_surrogate"], []]
    assert rows[3]["id"] == "p4\ufffd"
    shown = deepinfer("run", "--model", "fake", "--dry-run", "--show-tokens", CASES / "11_surrogates.jsonl")
    prompts = [bytes(row["token_ids"]).decode() for row in shown.rows]
    assert prompts[0] == "pair \U0001f525 is one fire"
    assert prompts[1] == "lonely high \ufffd half"
    assert prompts[2] == "reversed \ufffd\ufffd pair"
    assert prompts[4] == "raw \U0001f525 fire"


def test_case_12_fields_are_named() -> None:
    rows = run_fake(CASES / "12_empty_prompts.jsonl").rows
    fields = [row["error"]["field"] for row in rows if row["status"] == "error"]
    assert fields == ["prompt", "messages", "prompt", "prompt_token_ids"]


def test_case_13_edges() -> None:
    rows = by_id(run_fake(CASES / "13_max_tokens_edges.jsonl"))
    scored = rows["m0lp"]
    assert [output["text"] for output in scored["outputs"]] == [""]
    assert scored["usage"]["completion_tokens"] == 0
    assert len(scored["prompt_logprobs"]) == scored["usage"]["prompt_tokens"]
    assert scored["prompt_logprobs"][0] is None
    assert rows["m1"]["usage"]["completion_tokens"] == 1
    assert rows["m1"]["outputs"][0]["finish_reason"] == "length"
    assert rows["mint"]["usage"]["completion_tokens"] <= 3
    assert rows["mbool"]["error"]["field"] == "max_tokens"


def test_case_14_overflow_is_explained() -> None:
    done = run_fake("--config", CASES / "14_too_long.yaml", CASES / "14_too_long.jsonl")
    rows = by_id(done)
    message = rows["l2"]["error"]["message"]
    assert "64" in message and "max_model_len" in message and "2,755" in message
    last = rows["l4"]
    assert last["outputs"][0]["finish_reason"] == "context"
    assert last["usage"]["prompt_tokens"] + last["usage"]["completion_tokens"] <= 64


@pytest.mark.parametrize("policy", ["left", "middle"])
def test_case_14_truncation_on_request_only(policy: str) -> None:
    config = CASES / "14_too_long.yaml"
    done = run_fake("--config", config, "--truncate-prompt", policy, CASES / "14_too_long.jsonl")
    row = by_id(done)["l2"]
    assert row["status"] == "ok"
    assert [w["code"] for w in row["warnings"]] == ["truncated_prompt"]
    assert row["usage"]["prompt_tokens"] + row["usage"]["completion_tokens"] <= 64
    assert row["usage"]["completion_tokens"] >= 1


def test_case_15_fields_are_named() -> None:
    rows = by_id(run_fake(CASES / "15_stop_strings.jsonl"))
    assert [rows[i]["error"]["field"] for i in ("t3", "t4", "t5")] == ["stop", "stop[1]", "stop[0]"]


def test_case_16_seeds_and_samples() -> None:
    done = run_fake(CASES / "16_n_and_seed.jsonl")
    rows = by_id(done)
    texts = [output["text"] for output in rows["r1"]["outputs"]]
    assert len(texts) == 3 and len(set(texts)) > 1
    assert rows["r2"]["outputs"][0] == rows["r1"]["outputs"][0]
    assert isinstance(rows["r3"]["outputs"][0]["seed"], int)
    greedy = [output["text"] for output in rows["r5"]["outputs"]]
    assert greedy[0] == greedy[1]
    assert run_fake(CASES / "16_n_and_seed.jsonl").stdout == done.stdout
    assert run_fake("--max-num-seqs", "1", CASES / "16_n_and_seed.jsonl").stdout == done.stdout


def test_case_19_envelopes() -> None:
    done = run_fake(CASES / "19_openai_envelope.jsonl")
    assert [row["id"] for row in done.rows][:5] == ["o1", "o2", "o3", "o4", "o5"]
    assert done.rows[5]["id_generated"] is True
    assert [w["code"] for w in done.rows[5]["warnings"]] == ["generated_id"]
    assert done.stderr.count("whatever-name") == 1


def test_case_19_openai_shape() -> None:
    done = run_fake("--output-format", "openai", CASES / "19_openai_envelope.jsonl")
    rows = parse_rows(done.stdout)
    assert done.code == 3
    for row in rows:
        assert set(row) == {"id", "custom_id", "response", "error"}
    assert [row["response"]["status_code"] for row in rows] == [200, 400, 400, 400, 200, 200]
    assert [row["custom_id"] for row in rows][:5] == ["o1", "o2", "o3", "o4", "o5"]
    chat, text = rows[0]["response"]["body"], rows[4]["response"]["body"]
    assert chat["object"] == "chat.completion" and chat["created"] == 0
    assert chat["choices"][0]["message"]["role"] == "assistant"
    assert text["object"] == "text_completion" and isinstance(text["choices"][0]["text"], str)
    failed = rows[1]["response"]["body"]
    assert set(failed) == {"error", "deepinfer"} and failed["error"]["code"] == "bad_param"
    assert run_fake("--output-format", "openai", CASES / "19_openai_envelope.jsonl").stdout == done.stdout


def test_case_20_suggestions_and_columns() -> None:
    done = run_fake(CASES / "20_unknown_fields.jsonl")
    rows = by_id(done)
    wanted = {"f1": "max_tokens", "f2": "temperature", "f4": "max_tokens"}
    for name, meant in wanted.items():
        assert f"did you mean {meant}?" in rows[name]["error"]["message"]
    for key in ("split", "gold", "row_no"):
        assert done.stderr.count(f"'{key}'") == 1
    back = by_id(run_fake("--passthrough", "all", CASES / "20_unknown_fields.jsonl"))
    assert back["f3"]["columns"] == {"split": "train", "gold": "blue", "row_no": 17}
    some = by_id(run_fake("--passthrough", "gold,prompt", CASES / "20_unknown_fields.jsonl"))
    assert some["f3"]["columns"] == {"gold": "blue", "prompt": "extra columns"}


def test_case_21_fields_are_named() -> None:
    rows = run_fake(CASES / "21_prompt_shape.jsonl").rows
    fields = [row["error"]["field"] for row in rows[:8]]
    assert fields == [
        "messages",
        "prompt",
        "prompt",
        "messages",
        "messages[0].content",
        "messages[0].role",
        "prompt",
        "prompt_token_ids[2]",
    ]


@pytest.mark.parametrize("name", ["22_gzip.jsonl.gz", "22_gzip_wrong_suffix.jsonl"])
def test_case_22_from_stdin(name: str) -> None:
    done = run_fake("-", stdin=(CASES / name).read_bytes())
    assert (done.code, len(done.rows)) == (0, 6)


def test_case_23_message() -> None:
    done = run_fake(CASES / "23_gzip_truncated.jsonl.gz")
    assert "ends early" in done.stderr
    assert len(done.rows) == 19


def test_case_24_resolved_settings() -> None:
    config = CASES / "24_run.yaml"
    args = ("run", "x.jsonl", "--config", config, "--print-config", "--set", "temperature=0.3")
    done = deepinfer(*args, env={"DEEPINFER_TOP_P": "0.5"})
    assert done.code == 0, done.stderr
    text = done.stdout.decode()
    lines = {line.split(":")[0].strip(): line for line in text.splitlines() if ":" in line}
    assert "0.3" in lines["temperature"] and "cli" in lines["temperature"]
    assert "0.5" in lines["top_p"] and "env" in lines["top_p"]
    assert "83" not in lines["seed"] and "123" in lines["seed"]
    assert "1000" in lines["max_tokens"]


def test_case_24_bad_key() -> None:
    config = CASES / "24_run_bad_key.yaml"
    done = deepinfer("run", CASES / "01_plain.jsonl", "--config", config)
    assert (done.code, done.stdout) == (2, b"")
    assert "temperatur" in done.stderr and "temperature" in done.stderr and ":2" in done.stderr


def test_case_26_sources_in_name_order() -> None:
    done = run_fake(CASES / "26_multi" / "part-*.jsonl")
    places = [(Path(row["source"]["file"]).name, row["source"]["line"]) for row in done.rows]
    assert places == [
        ("part-000.jsonl", 1),
        ("part-000.jsonl", 2),
        ("part-001.jsonl", 1),
        ("part-001.jsonl", 2),
    ]
    assert "part-000.jsonl" in done.rows[3]["error"]["message"]
    prefixed = run_fake("--id-prefix", "file", CASES / "26_multi" / "part-*.jsonl")
    assert [row["id"] for row in prefixed.rows][1::2] == ["part-000.jsonl:shared", "part-001.jsonl:shared"]


def test_case_26_empty_file_is_said() -> None:
    done = run_fake(CASES / "26_multi" / "part-002.jsonl")
    assert (done.code, done.stdout) == (0, b"")
    assert "no rows" in done.stderr


def test_case_17_what_was_cut_stays_as_it_is() -> None:
    j1, j2 = run_fake(CASES / "17_schema_truncated.jsonl").rows
    for row, num_tokens in ((j1, 5), (j2, 200)):
        (output,) = row["outputs"]
        assert row["usage"]["completion_tokens"] == num_tokens
        assert output["finish_reason"] == "length" and "parsed" not in output
        with pytest.raises(json.JSONDecodeError):
            json.loads(output["text"])
        assert f"{num_tokens} tokens" in row["error"]["message"]
    assert j2["outputs"][0]["text"].startswith(j1["outputs"][0]["text"])


def test_case_18_is_enforced_or_refused_by_name() -> None:
    rows = by_id(run_fake(CASES / "18_schema_invalid.jsonl"))
    assert "objekt" in rows["x1"]["error"]["message"]
    assert rows["x1"]["error"]["field"] == rows["x4"]["error"]["field"] == "constraint.json_schema"
    assert "/uniqueItems" in rows["x4"]["error"]["message"]
    value = rows["x3"]["outputs"][0]["parsed"]
    assert value == json.loads(rows["x3"]["outputs"][0]["text"])
    assert value.isalpha() and value.isupper() and len(value) <= 3
    assert rows["x7"]["outputs"][0]["text"] in ("yes", "no")
    assert "parsed" not in rows["x7"]["outputs"][0]


def test_the_cases_are_what_they_say() -> None:
    """The inputs themselves: a checkout that rewrites line ends would make several cases pass for nothing."""
    assert (CASES / "02_bom.jsonl").read_bytes().startswith(b"\xef\xbb\xbf")
    assert (CASES / "03_crlf.jsonl").read_bytes().count(b"\r\n") == 3
    assert not (CASES / "04_blank_lines.jsonl").read_bytes().endswith(b"\n")
    assert b"\xe2\x80\xa8" in (CASES / "05_unicode_separators.jsonl").read_bytes()
    assert json.loads((CASES / "27_resume_input.jsonl").read_text().splitlines()[0])["id"] == "w0"
