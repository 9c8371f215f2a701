"""llama.cpp through its C interface: an oracle for numbers and a peer for speed.

Any build of libllama with the current layout of its parameter structures will do; the defaults that the
library itself fills in are compared with what that layout predicts before anything runs. Looked for in this
order: DEEPINFER_LLAMA_CPP (path of the shared object), then the library inside the `xllamacpp` package.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from deepinfer_cli.errors import ResourceError, UsageError

LIBRARY_VARIABLE: Final = "DEEPINFER_LLAMA_CPP"
_SPARE_BYTES: Final = 512  # the structures are larger than what is spelled out here; excess is never read


class _ModelParams(ctypes.Structure):
    _fields_ = [("rest", ctypes.c_ubyte * _SPARE_BYTES)]


class _ContextParams(ctypes.Structure):
    _fields_ = [
        ("n_ctx", ctypes.c_uint32),
        ("n_batch", ctypes.c_uint32),
        ("n_ubatch", ctypes.c_uint32),
        ("n_seq_max", ctypes.c_uint32),
        ("n_rs_seq", ctypes.c_uint32),
        ("n_outputs_max", ctypes.c_uint32),
        ("n_outputs_max_per_seq", ctypes.c_uint32),
        ("n_threads", ctypes.c_int32),
        ("n_threads_batch", ctypes.c_int32),
        ("rest", ctypes.c_ubyte * _SPARE_BYTES),
    ]


class _Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


_LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

# name: (result, arguments)
_SIGNATURES: Final[dict[str, tuple[Any, list[Any]]]] = {
    "llama_backend_init": (None, []),
    "llama_log_set": (None, [_LogCallback, ctypes.c_void_p]),
    "llama_print_system_info": (ctypes.c_char_p, []),
    "llama_model_default_params": (_ModelParams, []),
    "llama_context_default_params": (_ContextParams, []),
    "llama_model_load_from_file": (ctypes.c_void_p, [ctypes.c_char_p, _ModelParams]),
    "llama_model_free": (None, [ctypes.c_void_p]),
    "llama_model_get_vocab": (ctypes.c_void_p, [ctypes.c_void_p]),
    "llama_vocab_n_tokens": (ctypes.c_int32, [ctypes.c_void_p]),
    "llama_tokenize": (
        ctypes.c_int32,
        [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_int32,
            ctypes.POINTER(ctypes.c_int32),
            ctypes.c_int32,
            ctypes.c_bool,
            ctypes.c_bool,
        ],
    ),
    "llama_init_from_model": (ctypes.c_void_p, [ctypes.c_void_p, _ContextParams]),
    "llama_free": (None, [ctypes.c_void_p]),
    "llama_get_memory": (ctypes.c_void_p, [ctypes.c_void_p]),
    "llama_memory_clear": (None, [ctypes.c_void_p, ctypes.c_bool]),
    "llama_memory_seq_rm": (ctypes.c_bool, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]),
    "llama_batch_init": (_Batch, [ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]),
    "llama_batch_free": (None, [_Batch]),
    "llama_decode": (ctypes.c_int32, [ctypes.c_void_p, _Batch]),
    "llama_synchronize": (None, [ctypes.c_void_p]),
    "llama_sampler_init_greedy": (ctypes.c_void_p, []),
    "llama_sampler_sample": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32]),
    "llama_sampler_free": (None, [ctypes.c_void_p]),
    "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32]),
}


def find_library() -> Path:
    """The shared object to load, or an error that says how to get one."""
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise UsageError(f"{LIBRARY_VARIABLE}: {named}: no such file")
        return Path(named)
    spec = importlib.util.find_spec("xllamacpp")  # finds it without running it
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for candidate in sorted(Path(folder).glob("xllamacpp*.so")):
            return candidate
    raise UsageError(
        "llama.cpp is not installed",
        f"pip install xllamacpp, or set {LIBRARY_VARIABLE} to a libllama.so",
    )


def _load(library: Path) -> ctypes.CDLL:
    lib = ctypes.CDLL(str(library))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    params = lib.llama_context_default_params()
    found = (params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max, params.n_threads)
    if found != (512, 2048, 512, 1, 4) or params.n_threads_batch != 4:
        raise UsageError(f"{library}: its llama_context_params has another layout than known here: {found}")
    return lib


class LlamaCpp:
    """One model and one context. Tokens in, logits or the most likely token out."""

    def __init__(
        self,
        model: Path,
        *,
        library: Path | None = None,
        num_threads: int = 1,
        num_ctx: int = 1024,
        num_seqs: int = 1,
        batch: int = 512,
    ) -> None:
        self.library = library or find_library()
        self._lib = _load(self.library)
        self._log = _LogCallback(lambda level, text, data: None)  # kept alive: the library calls it
        self._lib.llama_log_set(self._log, None)
        self._lib.llama_backend_init()
        self._model = self._lib.llama_model_load_from_file(
            str(model).encode(), self._lib.llama_model_default_params()
        )
        if not self._model:
            raise ResourceError(f"{model}: llama.cpp could not load it")
        params = self._lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = num_ctx * num_seqs, batch, min(batch, 512)
        params.n_seq_max = num_seqs
        params.n_threads = params.n_threads_batch = num_threads
        self._context = self._lib.llama_init_from_model(self._model, params)
        if not self._context:
            raise ResourceError(f"{model}: llama.cpp could not allocate a context of {params.n_ctx} tokens")
        self._memory = self._lib.llama_get_memory(self._context)
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self._greedy = self._lib.llama_sampler_init_greedy()
        self._batch_capacity = batch
        self._batch = self._lib.llama_batch_init(batch, 0, 1)
        self.vocab_size: int = self._lib.llama_vocab_n_tokens(self._vocab)

    def close(self) -> None:
        self._lib.llama_sampler_free(self._greedy)
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)

    def system_info(self) -> str:
        """What instruction sets the library was built for, in its own words."""
        info: bytes = self._lib.llama_print_system_info()
        return info.decode()

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        data = text.encode()
        capacity = len(data) + 8
        out = (ctypes.c_int32 * capacity)()
        count = self._lib.llama_tokenize(self._vocab, data, len(data), out, capacity, False, parse_special)
        if count < 0:
            raise ResourceError(f"llama.cpp needs {-count} tokens for a text of {len(data)} bytes")
        return list(out[:count])

    def clear(self) -> None:
        self._lib.llama_memory_clear(self._memory, True)

    def forget(self, first_position: int) -> None:
        """Drops cache entries of all sequences from `first_position` on."""
        self._lib.llama_memory_seq_rm(self._memory, -1, first_position, -1)

    def forget_sequence(self, sequence: int) -> None:
        """Drops all cache entries of one sequence."""
        self._lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def sample_greedy(self, row: int) -> int:
        """The most likely token by row `row` of the last batch, found by llama.cpp's own sampler."""
        token: int = self._lib.llama_sampler_sample(self._greedy, self._context, row)
        return token

    def decode(self, rows: Sequence[tuple[int, int, int, bool]]) -> None:
        """One batch of (token, position, sequence, whether its logits are wanted); waits for the end."""
        if len(rows) > self._batch_capacity:
            raise ValueError(f"{len(rows)} tokens in a batch of {self._batch_capacity}")
        batch = self._batch
        batch.n_tokens = len(rows)
        for index, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = wanted
        status = self._lib.llama_decode(self._context, batch)
        if status != 0:
            raise ResourceError(f"llama_decode failed with {status} on a batch of {len(rows)} tokens")
        self._lib.llama_synchronize(self._context)

    def logits(self, index: int) -> array[float]:
        """[vocab_size] fp32 logits of row `index` of the last batch."""
        pointer = self._lib.llama_get_logits_ith(self._context, index)
        values: array[float] = array("f")
        values.frombytes(ctypes.string_at(pointer, 4 * self.vocab_size))
        return values

    def score(self, tokens: Sequence[int], positions: Sequence[int]) -> Iterator[tuple[int, array[float]]]:
        """The logits that predict the token at each of `positions` (ascending, at least 1)."""
        wanted = {position - 1 for position in positions}
        self.clear()
        for start in range(0, max(wanted) + 1, self._batch_capacity):
            chunk = range(start, min(start + self._batch_capacity, max(wanted) + 1))
            self.decode([(tokens[at], at, 0, at in wanted) for at in chunk])
            for index, at in enumerate(chunk):
                if at in wanted:
                    yield at + 1, self.logits(index)

    def greedy(self, tokens: Sequence[int], num_tokens: int, stop: Sequence[int] = ()) -> list[int]:
        """The most likely continuation, token by token, up to one of `stop` (not included)."""
        self.clear()
        generated: list[int] = []
        for start in range(0, len(tokens), self._batch_capacity):
            chunk = range(start, min(start + self._batch_capacity, len(tokens)))
            self.decode([(tokens[at], at, 0, at == len(tokens) - 1) for at in chunk])
            last = len(chunk) - 1
        while True:
            values = self.logits(last)
            token = max(range(self.vocab_size), key=values.__getitem__)
            if token in stop:
                return generated
            generated.append(token)
            if len(generated) == num_tokens:
                return generated
            self.decode([(token, len(tokens) + len(generated) - 1, 0, True)])
            last = 0
