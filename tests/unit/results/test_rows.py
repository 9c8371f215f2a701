"""Output rows: valid JSON whatever is in them, and nothing that changes from run to run."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from deepinfer_cli.constraints.types import CheckSpec
from deepinfer_cli.constraints.validate import Verdict
from deepinfer_cli.requests.types import ERROR_CODES, RowError, RowIdentity
from deepinfer_cli.results.assemble import NativeRows
from deepinfer_cli.results.json_text import json_float32, json_string
from deepinfer_cli.results.judged import Judged, judge, row_error, row_warnings
from deepinfer_cli.results.openai_rows import OpenAIRows
from deepinfer_cli.results.records import parse_record
from deepinfer_cli.results.types import OpenRow, RowStyle
from tests.support.runs import parse_rows

TOKENS = [bytes([i]) for i in range(256)] + ["é\u2028".encode()]


@dataclass(frozen=True)
class Score:
    token: int = 65
    logprob: float = -0.5
    rank: int = 1
    top: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True)
class FakeSample:
    tokens: list[int] = field(default_factory=lambda: [72, 105])
    text: str = "Hi"
    finish_reason: str = "stop"
    stop_string: str = ""
    stop_token: int = -1
    logprobs: list[Score] = field(default_factory=list)
    constraint_state: str = "none"


@dataclass(frozen=True)
class FakeFinished:
    samples: list[FakeSample] = field(default_factory=lambda: [FakeSample()])
    prompt_logprobs: list[Score] = field(default_factory=list)
    id: int = 0
    error: str = ""
    error_retryable: bool = False
    num_prompt_tokens: int = 3
    num_cached_tokens: int = 2
    num_preemptions: int = 0
    queue_seconds: float = 0.1
    first_token_seconds: float = 0.2
    total_seconds: float = 0.5


IDENTITY = RowIdentity(index=4, line=9, file_number=0, id_json='"a"', request_hash="00ff")
ROW = OpenRow(IDENTITY, seed=11)
STYLE = RowStyle(file_names=("rows.jsonl",), settings_id="beef", model_name="m")


def native(row: OpenRow = ROW, finished: Any = None, style: RowStyle = STYLE) -> dict[str, Any]:
    line = NativeRows(style, TOKENS).ok(row, finished or FakeFinished())
    return parse_rows(line.encode())[0]


def test_the_whole_row() -> None:
    assert native() == {
        "id": "a",
        "index": 4,
        "status": "ok",
        "outputs": [{"text": "Hi", "finish_reason": "stop", "stop_reason": None, "seed": 11}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        "warnings": [],
        "request_hash": "00ff",
        "settings": "beef",
    }


@pytest.mark.parametrize("code", ERROR_CODES)
def test_error_rows(code: str) -> None:
    error = RowError(code, 'a "quoted"\u2028 message', "stop[1]", retryable=code == "engine_error")
    row = parse_rows(NativeRows(STYLE, TOKENS).failed(IDENTITY, error, ("double_bos",)).encode())[0]
    assert row["status"] == "error" and row["outputs"] == []
    assert row["error"] == {
        "code": code,
        "message": 'a "quoted"\u2028 message',
        "field": "stop[1]",
        "line": 9,
        "retryable": code == "engine_error",
    }
    assert [w["code"] for w in row["warnings"]] == ["double_bos"]


def test_codes_are_closed() -> None:
    with pytest.raises(ValueError):
        RowError("surprise", "no such code")


def test_unreadable_row_has_null_id_and_source_among_several_files() -> None:
    style = replace(STYLE, file_names=("a", "b\u2029"))
    identity = RowIdentity(index=0, line=2, file_number=1, id_json=None)
    row = parse_rows(NativeRows(style, TOKENS).failed(identity, RowError("bad_json", "x")).encode())[0]
    assert row["id"] is None and row["source"] == {"file": "b\u2029", "line": 2}


@pytest.mark.parametrize(
    ("sample", "wanted"),
    [
        (FakeSample(stop_string="E\u2028ND"), "E\u2028ND"),
        (FakeSample(stop_token=7), 7),
        (FakeSample(stop_token=8), None),  # the model's own end of sequence
        (FakeSample(), None),
    ],
)
def test_stop_reason(sample: FakeSample, wanted: Any) -> None:
    row = replace(ROW, stop_token_ids=frozenset((7,)))
    assert native(row, FakeFinished([sample]))["outputs"][0]["stop_reason"] == wanted


def test_logprobs_and_what_is_not_finite() -> None:
    score = Score(256, -math.inf, 3, [(65, -0.1), (66, math.nan)])
    row = replace(ROW, wants_logprobs=True, wants_prompt_logprobs=True, wants_token_ids=True)
    done = native(row, FakeFinished([FakeSample(logprobs=[score])], [score]))
    entry = {
        "token_id": 256,
        "token": "é\u2028",
        "logprob": None,
        "rank": 3,
        "top": [
            {"token_id": 65, "token": "A", "logprob": -0.1},
            {"token_id": 66, "token": "B", "logprob": None},
        ],
    }
    assert done["outputs"][0]["logprobs"] == [entry]
    assert done["outputs"][0]["token_ids"] == [72, 105]
    assert done["prompt_logprobs"] == [None, entry]


def test_scoring_only() -> None:
    done = native(finished=FakeFinished(samples=[]))
    assert done["outputs"] == [{"text": "", "finish_reason": "length", "stop_reason": None, "seed": 11}]
    assert done["usage"]["completion_tokens"] == 0


def test_times_only_under_timing() -> None:
    assert "timing" not in native()
    timed = native(style=replace(STYLE, timing=True))
    assert timed["timing"]["decode_s"] == 0.3 and timed["usage"]["cached_tokens"] == 2


@pytest.mark.parametrize("shape", [NativeRows, OpenAIRows])
def test_rows_do_not_show_how_they_were_computed(shape: Any) -> None:
    row = replace(ROW, wants_logprobs=True)
    quick = FakeFinished(num_cached_tokens=0, num_preemptions=0, total_seconds=0.1, id=1)
    slow = FakeFinished(num_cached_tokens=3, num_preemptions=9, total_seconds=9.0, id=2)
    assert shape(STYLE, TOKENS).ok(row, quick) == shape(STYLE, TOKENS).ok(row, slow)


@pytest.mark.parametrize("is_chat", [True, False])
def test_openai_rows(is_chat: bool) -> None:
    score = Score(256, -math.inf, 3, [(65, -0.1)])
    row = replace(ROW, is_chat=is_chat, wants_logprobs=True)
    finished = FakeFinished([FakeSample(finish_reason="context", logprobs=[score])] * 2)
    (done,) = parse_rows(OpenAIRows(STYLE, TOKENS).ok(row, finished).encode())
    body = done["response"]["body"]
    assert (done["custom_id"], done["error"], done["response"]["status_code"]) == ("a", None, 200)
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["created"] == 0 and body["id"].startswith("chatcmpl-" if is_chat else "cmpl-")
    logprobs = body["choices"][0]["logprobs"]
    if is_chat:
        assert logprobs["content"][0]["bytes"] == list("é\u2028".encode())
    else:
        assert logprobs["token_logprobs"] == [None] and logprobs["text_offset"] == [0]


def test_openai_scores_name_parts_of_characters_by_their_bytes() -> None:
    top = [(65, -0.1), (0xE2, -0.2), (0xC3, -0.3), (257, -0.4)]
    tokens = [*TOKENS, b"A"]  # 257 looks like 65: the better one stands
    row = replace(ROW, wants_logprobs=True)
    finished = FakeFinished([FakeSample(logprobs=[Score(0xE2, -0.2, 2, top), Score(65, -0.1, 1)])])
    (done,) = parse_rows(OpenAIRows(STYLE, tokens).ok(row, finished).encode())
    logprobs = done["response"]["body"]["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["bytes:\\xe2", "A"] and logprobs["text_offset"] == [0, 1]
    assert logprobs["top_logprobs"] == [{"A": -0.1, "bytes:\\xe2": -0.2, "bytes:\\xc3": -0.3}, None]


@pytest.mark.parametrize(
    ("code", "status"), [("bad_param", 400), ("row_too_large", 413), ("engine_error", 500), ("timeout", 408)]
)
def test_openai_failures_have_no_completion(code: str, status: int) -> None:
    line = OpenAIRows(STYLE, TOKENS).failed(IDENTITY, RowError(code, "why", "n"))
    (done,) = parse_rows(line.encode())
    assert done["response"]["status_code"] == status
    assert set(done["response"]["body"]) == {"error", "deepinfer"}
    assert done["error"]["code"] == code and "line 9" in done["error"]["message"]


@pytest.mark.parametrize("code", [*range(0x100), 0x2027, 0x2028, 0x2029, 0xD7FF, 0xE000, 0xFFFF, 0x10FFFF])
def test_any_character_survives(code: int) -> None:
    text = f"a{chr(code)}b"
    quoted = json_string(text)
    assert json.loads(quoted) == text
    assert not set(quoted) & {"\u2028", "\u2029", "\u0085", "\n", "\r"}


def test_lone_surrogates_are_never_written() -> None:
    assert json.loads(json_string("a\ud800b")) == "a\ufffdb"


@pytest.mark.parametrize("value", [0.1, -1e-30, 3.4e38, 1.17549435e-38, -0.0, 123456.789])
def test_float32_round_trip(value: float) -> None:
    import struct

    (single,) = struct.unpack("<f", struct.pack("<f", value))
    text = json_float32(single)
    assert struct.pack("<f", json.loads(text)) == struct.pack("<f", single)


# ---- under a constraint ------------------------------------------------------------------------------------

BOUND = replace(ROW, check=CheckSpec("json_object", ""))
CUT = FakeSample(text='{"a', finish_reason="length", tokens=[1, 2])
STOPPED = replace(CUT, finish_reason="stop")
WHOLE = FakeSample(text='{"a": 1}')


@pytest.mark.parametrize(
    ("sample", "verdict", "code", "words"),
    [
        (WHOLE, Verdict("valid", parsed='{"a":1}'), None, ""),
        (WHOLE, Verdict("timeout"), None, ""),
        (WHOLE, Verdict("invalid", "no"), "engine_error", "defect of deepinfer: no"),
        (WHOLE, Verdict("unchecked", "no process"), "engine_error", "could not be checked: no process"),
        (CUT, None, "constraint_truncated", "at 2 tokens"),
        (replace(CUT, finish_reason="context"), None, "constraint_truncated", "context was full"),
        (replace(CUT, constraint_state="not_started"), None, "constraint_not_applied", "becoming active"),
        (replace(WHOLE, constraint_state="not_started"), None, "constraint_not_applied", "becoming active"),
        (
            replace(CUT, finish_reason="stop", stop_string="b"),
            Verdict("invalid", "x"),
            "constraint_truncated",
            "stop string",
        ),
        (
            replace(CUT, finish_reason="stop", stop_token=7),
            Verdict("invalid", "x"),
            "constraint_truncated",
            "stop token 7",
        ),
        (replace(CUT, finish_reason="stop", stop_token=2), Verdict("invalid", "x"), "engine_error", "defect"),
        (replace(CUT, finish_reason="aborted"), None, None, ""),
    ],
)
def test_verdicts(sample: FakeSample, verdict: Verdict | None, code: str | None, words: str) -> None:
    judged = judge(replace(BOUND, stop_token_ids=frozenset({7})), sample, verdict)
    assert (judged.error.code if judged.error else None) == code
    assert code is None or words in judged.error.message  # type: ignore[union-attr]
    assert (judged.parsed is not None) == (verdict is not None and verdict.parsed is not None)


def test_what_was_not_enforced_is_never_a_defect() -> None:
    row = replace(BOUND, not_enforced=("/a/uniqueItems",))
    judged = judge(row, WHOLE, Verdict("invalid", "no"))
    assert judged.error is not None and judged.error.code == "constraint_violated"
    assert row_warnings(row, [judged, Judged(is_unchecked=True)]) == (
        "schema_not_enforced",
        "validation_timeout",
    )


@pytest.mark.parametrize("shape", [NativeRows, OpenAIRows])
def test_rows_with_texts_that_do_not_fit(shape: Any) -> None:
    row = replace(BOUND, not_enforced=("/a/uniqueItems",), is_chat=True)
    finished = FakeFinished([WHOLE, CUT])
    judged = [Judged(parsed='{"a":1}'), judge(row, CUT, None)]
    error = row_error(judged)
    assert error is not None and error.message.startswith("output 2 of 2: ")
    (bad,) = parse_rows(shape(STYLE, TOKENS).failed_texts(row, finished, judged, error).encode())
    (good,) = parse_rows(shape(STYLE, TOKENS).ok(row, FakeFinished([WHOLE]), judged[:1]).encode())
    if shape is NativeRows:
        assert (bad["status"], bad["error"]["code"]) == ("error", "constraint_truncated")
        assert [o["text"] for o in bad["outputs"]] == [WHOLE.text, CUT.text]
        assert (
            bad["outputs"][0]["parsed"] == {"a": 1} and bad["outputs"][1]["error"] == "constraint_truncated"
        )
        assert bad["not_enforced"] == good["not_enforced"] == ["/a/uniqueItems"]
        assert bad["usage"]["completion_tokens"] == 4
        assert good["outputs"][0]["parsed"] == {"a": 1}
    else:
        body = bad["response"]["body"]
        assert (bad["response"]["status_code"], "choices" in body) == (422, False)
        assert [o["text"] for o in body["deepinfer"]["outputs"]] == [WHOLE.text, CUT.text]
        assert body["deepinfer"]["not_enforced"] == ["/a/uniqueItems"]
        assert good["response"]["body"]["choices"][0]["message"]["parsed"] == {"a": 1}


def test_a_check_that_was_given_up_is_said_in_either_shape() -> None:
    judged = [Judged(is_unchecked=True)]
    (row,) = parse_rows(NativeRows(STYLE, TOKENS).ok(BOUND, FakeFinished([WHOLE]), judged).encode())
    assert [w["code"] for w in row["warnings"]] == ["validation_timeout"] and "parsed" not in row["outputs"][
        0
    ]
    (line,) = parse_rows(OpenAIRows(STYLE, TOKENS).ok(BOUND, FakeFinished([WHOLE]), judged).encode())
    body = line["response"]["body"]
    assert body["deepinfer"]["validation_timeout"] is True and "parsed" not in body["choices"][0]


def test_a_value_is_deeper_than_what_comes_in_may_be() -> None:
    deep = "[" * 5000 + "]" * 5000
    line = NativeRows(STYLE, TOKENS).ok(BOUND, FakeFinished(), [Judged(parsed=deep)])
    assert parse_record(line.rstrip().encode()).index == 4
