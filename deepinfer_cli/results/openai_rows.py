"""`--output-format openai`: OpenAI's batch output rows, byte-stable: ids are hashes and `created` is 0."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from deepinfer_cli.requests.types import RowError, RowIdentity
from deepinfer_cli.results.assemble import judged_fields
from deepinfer_cli.results.json_text import json_float32, json_string, json_value
from deepinfer_cli.results.judged import Judged
from deepinfer_cli.results.records import RESUME_KEY
from deepinfer_cli.results.types import FinishedRequest, OpenRow, RowStyle, Sample, TokenScore

_STATUS = {
    "engine_error": 500,
    "aborted": 499,
    "timeout": 408,
    "row_too_large": 413,
    "constraint_truncated": 422,
    "constraint_not_applied": 422,
    "constraint_violated": 422,
}
_FINISH = {"context": "length"}


def status_code(code: str) -> int:
    """HTTP status that stands for an error code."""
    return _STATUS.get(code, 400)


class OpenAIRows:
    """Shape of `--output-format openai`."""

    def __init__(self, style: RowStyle, token_bytes: Sequence[bytes]) -> None:
        self._style = style
        self._token_bytes = token_bytes
        self._model = json_string(style.model_name)

    def ok(self, row: OpenRow, finished: FinishedRequest, judged: Sequence[Judged] = ()) -> str:
        make = self._chat_choice if row.is_chat else self._text_choice
        values = [j.parsed for j in judged] or [None] * len(finished.samples)
        choices = ",".join(make(row, j, sample, values[j]) for j, sample in enumerate(finished.samples))
        kind = "chat.completion" if row.is_chat else "text_completion"
        name = self._hash(row.identity)
        body = (
            f'{{"id":"{"chatcmpl" if row.is_chat else "cmpl"}-{name}","object":"{kind}","created":0,'
            f'"model":{self._model},"choices":[{choices}],"usage":{_usage(finished)}'
        )
        if row.wants_prompt_logprobs:
            scores = ["null", *(self._chat_score(score) for score in finished.prompt_logprobs)]
            body += f',"prompt_logprobs":[{",".join(scores)}]'
        if row.identity.metadata_json is not None:
            body += f',"metadata":{row.identity.metadata_json}'
        is_unchecked = any(j.is_unchecked for j in judged)
        own = self._own(row.identity, not_enforced=row.not_enforced, is_unchecked=is_unchecked)
        return self._line(row.identity, name, 200, f"{body},{own}}}", "null")

    def failed(self, identity: RowIdentity, error: RowError, warnings: Sequence[str] = ()) -> str:
        return self._failed(identity, error, self._own(identity, retryable=error.retryable))

    def failed_texts(
        self, row: OpenRow, finished: FinishedRequest, judged: Sequence[Judged], error: RowError
    ) -> str:
        """The texts stand where nobody takes them for a completion."""
        texts = []
        for sample, output in zip(finished.samples, judged, strict=True):
            text = f'{{"text":{json_string(sample.text)},"finish_reason":"{sample.finish_reason}"'
            texts.append(f"{text}{judged_fields(output)}}}")
        own = self._own(
            row.identity, retryable=error.retryable, not_enforced=row.not_enforced, outputs=",".join(texts)
        )
        return self._failed(row.identity, error, f'{own},"usage":{_usage(finished)}')

    def _failed(self, identity: RowIdentity, error: RowError, own: str) -> str:
        status = status_code(error.code)
        kind = "server_error" if status == 500 else "invalid_request_error"
        message = json_string(f"line {identity.line}: {error.message}")
        param = "null" if error.field is None else json_string(error.field)
        inner = f'{{"message":{message},"type":"{kind}","param":{param},"code":"{error.code}"}}'
        outer = f'{{"code":"{error.code}","message":{message}}}'
        return self._line(identity, self._hash(identity), status, f'{{"error":{inner},{own}}}', outer)

    def _own(
        self,
        identity: RowIdentity,
        *,
        retryable: bool = False,
        not_enforced: Sequence[str] = (),
        is_unchecked: bool = False,
        outputs: str = "",
    ) -> str:
        """What --resume needs and OpenAI's lines have no place for."""
        more = f'"request_hash":"{identity.request_hash}","settings":"{self._style.settings_id}"'
        if retryable:
            more += ',"retryable":true'
        if not_enforced:
            more += f',"not_enforced":{json_value(list(not_enforced))}'
        if is_unchecked:
            more += ',"validation_timeout":true'
        if outputs:
            more += f',"outputs":[{outputs}]'
        if len(self._style.file_names) > 1:
            file = json_string(self._style.file_names[identity.file_number])
            more += f',"source":{{"file":{file},"line":{identity.line}}}'
        return f'"{RESUME_KEY}":{{"index":{identity.index},{more}}}'

    def _hash(self, identity: RowIdentity) -> str:
        text = f"{identity.id_json}\0{identity.index}\0{identity.request_hash}\0{self._style.settings_id}"
        return hashlib.blake2b(text.encode(), digest_size=12, person=b"di-openai").hexdigest()

    def _line(self, identity: RowIdentity, name: str, status: int, body: str, error: str) -> str:
        return (
            f'{{"id":"batch_req_{name}","custom_id":{identity.id_json or "null"},"response":'
            f'{{"status_code":{status},"request_id":"{name}","body":{body}}},"error":{error}}}\n'
        )

    def _chat_choice(self, row: OpenRow, index: int, sample: Sample, parsed: str | None) -> str:
        logprobs = "null"
        if row.wants_logprobs:
            logprobs = f'{{"content":[{",".join(self._chat_score(s) for s in sample.logprobs)}]}}'
        return (
            f'{{"index":{index},"message":{{"role":"assistant","content":{json_string(sample.text)}{_value(parsed)}}},'
            f'"logprobs":{logprobs},"finish_reason":"{_finish(sample)}"}}'
        )

    def _text_choice(self, row: OpenRow, index: int, sample: Sample, parsed: str | None) -> str:
        logprobs = self._text_scores(sample.logprobs) if row.wants_logprobs else "null"
        return (
            f'{{"index":{index},"text":{json_string(sample.text)}{_value(parsed)},"logprobs":{logprobs},'
            f'"finish_reason":"{_finish(sample)}"}}'
        )

    def _chat_score(self, score: TokenScore) -> str:
        top = ",".join(f"{{{self._chat_token(t, p)}}}" for t, p in score.top)
        return f'{{{self._chat_token(score.token, score.logprob)},"top_logprobs":[{top}]}}'

    def _chat_token(self, token: int, logprob: float) -> str:
        raw = self._token_bytes[token]
        shown = json_string(raw.decode(errors="replace"))
        return f'"token":{shown},"bytes":{json_value(list(raw))},"logprob":{json_float32(logprob)}'

    def _text_scores(self, scores: Sequence[TokenScore]) -> str:
        """The completions shape: parallel lists; offsets count characters of the text."""
        tokens, logprobs, tops, offsets = [], [], [], []
        offset = 0
        for score in scores:
            raw = self._token_bytes[score.token]
            tokens.append(json_string(_spelled(raw)))
            logprobs.append(json_float32(score.logprob))
            offsets.append(str(offset))
            offset += len(raw.decode(errors="replace"))
            best: dict[str, float] = {}
            for token, logprob in score.top:
                best.setdefault(json_string(_spelled(self._token_bytes[token])), logprob)
            pairs = (f"{token}:{json_float32(logprob)}" for token, logprob in best.items())
            tops.append("{" + ",".join(pairs) + "}" if best else "null")
        return (
            f'{{"tokens":[{",".join(tokens)}],"token_logprobs":[{",".join(logprobs)}],'
            f'"top_logprobs":[{",".join(tops)}],"text_offset":[{",".join(offsets)}]}}'
        )


def _spelled(raw: bytes) -> str:
    """A token as a key: parts of characters, which look all alike as U+FFFD, are shown by their bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _value(parsed: str | None) -> str:
    return "" if parsed is None else f',"parsed":{parsed}'


def _usage(finished: FinishedRequest) -> str:
    num_prompt = finished.num_prompt_tokens
    num_output = sum(len(sample.tokens) for sample in finished.samples)
    return (
        f'{{"prompt_tokens":{num_prompt},"completion_tokens":{num_output},'
        f'"total_tokens":{num_prompt + num_output}}}'
    )


def _finish(sample: Sample) -> str:
    return _FINISH.get(sample.finish_reason, sample.finish_reason)
