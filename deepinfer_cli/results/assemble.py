"""A finished request or an error to one output row, in this project's own shape.

A row is a function of (input row, settings, model, numerics): no times, no counters, nothing random. Only
`--timing` adds such things, and says so. Key order is fixed; `id` and `metadata` are the input's own bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_cli.requests.types import WARNING_CODES, RowError, RowIdentity
from deepinfer_cli.results.json_text import json_float32, json_string, json_value
from deepinfer_cli.results.judged import Judged, row_warnings
from deepinfer_cli.results.types import FinishedRequest, OpenRow, RowStyle, Sample, TokenScore


class NativeRows:
    """Shape of `--output-format native`."""

    def __init__(self, style: RowStyle, token_bytes: Sequence[bytes]) -> None:
        self._style = style
        self._token_bytes = token_bytes
        self._files = [json_string(name) for name in style.file_names] if len(style.file_names) > 1 else []

    def ok(self, row: OpenRow, finished: FinishedRequest, judged: Sequence[Judged] = ()) -> str:
        parts = [self._head(row.identity), f'"status":"ok",{self._outputs(row, finished, judged)}']
        if row.wants_prompt_logprobs:
            scores = ["null", *(self._score(score) for score in finished.prompt_logprobs)]
            parts.append(f'"prompt_logprobs":[{",".join(scores)}]')
        parts.append(self._usage(finished))
        if self._style.timing:
            parts.append(_timing(finished))
        parts.append(self._tail(row.identity, row_warnings(row, judged)))
        return ",".join(parts) + "}\n"

    def failed(self, identity: RowIdentity, error: RowError, warnings: Sequence[str] = ()) -> str:
        tail = self._tail(identity, warnings)
        return f'{self._head(identity)},"status":"error","outputs":[],{_error(identity, error)},{tail}}}\n'

    def failed_texts(
        self, row: OpenRow, finished: FinishedRequest, judged: Sequence[Judged], error: RowError
    ) -> str:
        """An error row that keeps its texts."""
        tail = self._tail(row.identity, row_warnings(row, judged))
        return (
            f'{self._head(row.identity)},"status":"error",{self._outputs(row, finished, judged)},'
            f"{_error(row.identity, error)},{self._usage(finished)},{tail}}}\n"
        )

    def _outputs(self, row: OpenRow, finished: FinishedRequest, judged: Sequence[Judged]) -> str:
        if judged:
            outputs = [self._output(row, s, j) for s, j in zip(finished.samples, judged, strict=True)]
        else:
            outputs = [self._output(row, sample) for sample in finished.samples]
        text = f'"outputs":[{",".join(outputs) or _nothing_generated(row)}]'
        if row.not_enforced:
            text += f',"not_enforced":{json_value(list(row.not_enforced))}'
        return text

    def _usage(self, finished: FinishedRequest) -> str:
        num_tokens = sum([len(sample.tokens) for sample in finished.samples])
        usage = f'"prompt_tokens":{finished.num_prompt_tokens},"completion_tokens":{num_tokens}'
        if self._style.timing:
            usage += f',"cached_tokens":{finished.num_cached_tokens}'
        return f'"usage":{{{usage}}}'

    def _head(self, identity: RowIdentity) -> str:
        head = f'{{"id":{identity.id_json or "null"},"index":{identity.index}'
        if identity.id_generated:
            head += ',"id_generated":true'
        if self._files:
            file = self._files[identity.file_number]
            head += f',"source":{{"file":{file},"line":{identity.line}}}'
        return head

    def _tail(self, identity: RowIdentity, warnings: Sequence[str]) -> str:
        said = ",".join([f'{{"code":"{w}","message":{json_string(WARNING_CODES[w])}}}' for w in warnings])
        tail = f'"warnings":[{said}]'
        if identity.metadata_json is not None:
            tail += f',"metadata":{identity.metadata_json}'
        if identity.columns_json is not None:
            tail += f',"columns":{identity.columns_json}'
        tail += f',"request_hash":"{identity.request_hash}"'
        if self._style.settings_id:
            tail += f',"settings":"{self._style.settings_id}"'
        return tail

    def _output(self, row: OpenRow, sample: Sample, judged: Judged | None = None) -> str:
        text = (
            f'{{"text":{json_string(sample.text)},"finish_reason":"{sample.finish_reason}",'
            f'"stop_reason":{stop_reason(row, sample)},"seed":{row.seed}'
        )
        if row.wants_token_ids:
            text += f',"token_ids":[{",".join(map(str, sample.tokens))}]'
        if row.wants_logprobs:
            text += f',"logprobs":[{",".join([self._score(score) for score in sample.logprobs])}]'
        if judged is not None:
            text += judged_fields(judged)
        return text + "}"

    def _score(self, score: TokenScore) -> str:
        text = f'{{{self._token(score.token, score.logprob)},"rank":{score.rank}'
        if score.top:
            text += ',"top":[' + ",".join([f"{{{self._token(t, p)}}}" for t, p in score.top]) + "]"
        return text + "}"

    def _token(self, token: int, logprob: float) -> str:
        shown = json_string(self._token_bytes[token].decode(errors="replace"))
        return f'"token_id":{token},"token":{shown},"logprob":{json_float32(logprob)}'


def judged_fields(judged: Judged) -> str:
    """What an output under a constraint has more."""
    if judged.error is not None:
        return f',"error":"{judged.error.code}"'
    return "" if judged.parsed is None else f',"parsed":{judged.parsed}'


def _error(identity: RowIdentity, error: RowError) -> str:
    field = "null" if error.field is None else json_string(error.field)
    return (
        f'"error":{{"code":"{error.code}","message":{json_string(error.message)},"field":{field},'
        f'"line":{identity.line},"retryable":{"true" if error.retryable else "false"}}}'
    )


def _nothing_generated(row: OpenRow) -> str:
    """The one output of a row that only scores its prompt."""
    return f'{{"text":"","finish_reason":"length","stop_reason":null,"seed":{row.seed}}}'


def stop_reason(row: OpenRow, sample: Sample) -> str:
    """The stop string, or the id of a stop token that the row or run asked for; null otherwise."""
    if sample.stop_string:
        return json_string(sample.stop_string)
    return str(sample.stop_token) if sample.stop_token in row.stop_token_ids else "null"


def _timing(finished: FinishedRequest) -> str:
    """queue: submission to first admission; ttft: to the first token; e2e: to completion; seconds."""
    decode = max(finished.total_seconds - finished.first_token_seconds, 0.0)
    return (
        f'"timing":{{"queue_s":{finished.queue_seconds:.6f},"ttft_s":{finished.first_token_seconds:.6f},'
        f'"decode_s":{decode:.6f},"e2e_s":{finished.total_seconds:.6f},'
        f'"preemptions":{finished.num_preemptions}}}'
    )
