# The extension module as Python sees it. A test compares names and signatures with the module.

import os
from collections.abc import Callable
from typing import Any, Literal

class NativeError(RuntimeError):
    # args: (message, code); code: bad_file, unsupported, bad_request, resource or internal
    ...

def build_info() -> dict[str, str]: ...

# --- rows -----------------------------------------------------------------------------------------

class RowScan:
    @property
    def error(
        self,
    ) -> str | None: ...  # "bad_json", "bad_encoding", "not_an_object", "too_deep", "row_too_large"
    @property
    def message(self) -> str: ...
    @property
    def column(self) -> int: ...  # 1-based byte; 0 = no error
    @property
    def fields(self) -> list[tuple[str, int, int]]: ...  # (key, start, end) of each top-level value's bytes
    @property
    def has_lone_surrogate(self) -> bool: ...
    @property
    def lone_surrogate_column(self) -> int: ...  # 1-based byte of the first; 0 = none

def scan_row(line: bytes, max_depth: int = 128) -> RowScan: ...

class IdTable:
    def __init__(self, max_memory_bytes: int = 67108864, spill_dir: str | None = None) -> None: ...
    def insert(self, key: bytes, value: int) -> int: ...  # -1 when new, else the value stored first
    def increment(self, key: bytes) -> int: ...  # number of earlier increments of this key
    @property
    def memory_bytes(self) -> int: ...
    @property
    def spilled_bytes(self) -> int: ...

# --- model files ----------------------------------------------------------------------------------

class TensorFile:
    @property
    def format(self) -> str: ...  # "gguf" or "safetensors"
    @property
    def files(self) -> list[str]: ...
    @property
    def metadata(self) -> dict[str, Any]: ...  # scalars and lists; built anew at each access
    @property
    def tensors(self) -> list[tuple[str, str, tuple[int, ...], int, int, int]]:
        # (name, type, shape outermost first, bytes, index into files, byte offset in that file)
        ...

def open_tensor_file(path: str | os.PathLike[str]) -> TensorFile: ...

# --- text -----------------------------------------------------------------------------------------

class TokenTable:
    def __init__(self, bytes: list[bytes], special: list[bool]) -> None: ...
    def __len__(self) -> int: ...
    def bytes(self, token: int) -> bytes: ...
    def is_special(self, token: int) -> bool: ...

class TextState:
    def __init__(self, stop: list[str], include_stop: bool) -> None: ...
    def push(self, bytes: bytes, check_stop: bool = True) -> bool: ...
    def finish(self) -> None: ...
    @property
    def text(self) -> str: ...
    @property
    def matched_stop(self) -> str: ...

class BpeTokenizer:
    # tokens: bytes of every id, empty where no ordinary word can become it; merges: pairs of ids, best first.
    # specials are cut out of the text when parse_special is true, added ones always: leftmost, then longest,
    # but those that are late in a second pass over what lies between the others.
    # ignore_merges and nfc as in the model's tokenizer (llama 3 wants the first, qwen 2 the second).
    def __init__(
        self,
        tokens: list[bytes],
        merges: list[tuple[int, int]],
        pre: str,
        specials: dict[bytes, int],
        added: dict[bytes, int] = {},
        ignore_merges: bool = False,
        nfc: bool = False,
        late: list[bytes] = [],
    ) -> None: ...
    def encode(self, text: str | bytes, parse_special: bool) -> list[int]: ...
    def split(self, text: str | bytes) -> list[bytes]: ...  # the words that are encoded one by one
    @staticmethod
    def known_pre() -> list[str]: ...

# --- constraints ----------------------------------------------------------------------------------

class ConstraintMatcher:
    # The state of one constrained text, for tests; the engine makes its own. One thread at a time.
    # Bit t of mask() is set where token t is allowed; empty when error() says why.
    def mask(self, vocab_size: int) -> bytes: ...
    def accept(self, token: int) -> bool: ...  # a refused token changes nothing
    def validate(self, tokens: list[int]) -> int: ...  # how many would be accepted
    def rollback(self, num_tokens: int) -> bool: ...
    # Tokens of which each is the only one that the mask allows after those before it.
    def forced(self, vocab_size: int, max_tokens: int = 64) -> list[int]: ...
    def can_ask(self) -> bool: ...  # validate() of one token says what a mask would
    def done(self) -> bool: ...  # only end-of-sequence may follow
    def is_accepting(self) -> bool: ...  # the text may end here
    def error(self) -> str: ...  # empty while healthy

class ConstraintTemplate:
    # A compiled constraint. Any thread may clone it.
    def clone(self) -> ConstraintMatcher: ...

CONSTRAINT_SLICES: list[str]  # regular expressions: tokens of the vocabulary that are allowed together
CONSTRAINT_LEXER_STATES: int  # of one matcher, at most

class PythonMatchers:
    # Templates whose matchers are Python objects. A step calls `engine` for all of them, with the GIL taken
    # once: accept(matchers, tokens) -> which were taken; fill_masks(matchers, address, bytes of one mask) ->
    # which were filled, mask i at address + i * bytes.
    def __init__(self, engine: object, special: list[bool]) -> None: ...
    # A matcher in error is a NativeError bad_request, also where the first mask or token shows it.
    def compile(self, make_matcher: Callable[[], object]) -> ConstraintTemplate: ...

class Llguidance:
    # The constraint engine, called without the GIL through the C functions that its wheel exports.
    # NativeError unsupported: what of `library` does not fit. Without bpe nothing is forced.
    def __init__(
        self,
        library: str,
        tokens: list[bytes],  # bytes of every id, the spelling of special ones
        special: list[bool],
        eos_token_ids: list[int],
        bpe: BpeTokenizer | None = None,  # how the model itself spells a text
    ) -> None: ...
    # NativeError bad_request: the engine's reason. Any thread may compile.
    def compile(self, grammar: str) -> ConstraintTemplate: ...

# --- engine ---------------------------------------------------------------------------------------

class ThreadPool:
    def __init__(self, num_threads: int) -> None: ...  # counts the caller
    @property
    def num_threads(self) -> int: ...
    @property
    def num_calls(self) -> int: ...  # a sign of life inside a long step

class CacheGroupSpec:
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Literal["paged", "sequence"]: ...
    @property
    def block_tokens(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...  # all layers together

class Executor:  # no constructor: one of the classes below
    @property
    def vocab_size(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    @property
    def cache_groups(self) -> list[CacheGroupSpec]: ...

class FakeExecutor(Executor):
    # Logits are a hash of the token history, read back through the cache. For tests.
    def __init__(
        self,
        vocab_size: int = 256,
        max_positions: int = 2048,
        seed: int = 0,
        block_tokens: int = 16,
        *,
        groups: list[tuple[str, str, int]] = ...,  # (name, "paged" or "sequence", tokens per block)
        logit_scale: float = 4.0,
        eos_token_ids: list[int] = ...,
        eos_bias: float = 0.0,
        seconds_per_token: float = 0.0,
        fail_at_step: int = -1,
        num_failing_steps: int = 1,
        nan_token: int = -1,  # a history that holds this token has NaN logits
    ) -> None: ...

class FaultyExecutor(Executor):
    # Another executor with faults drawn from a seed, for tests; keeps it alive. Rates are shares of calls.
    def __init__(
        self,
        inner: Executor,
        *,
        seed: int = 0,
        throw_rate: float = 0.0,  # of steps
        poison_token: int = -1,  # a step that computes this token always throws
        nan_rate: float = 0.0,  # of logits rows
        copy_rate: float = 0.0,  # of block copies
        slow_rate: float = 0.0,  # of steps
        slow_seconds: float = 0.0,
        hang_at_step: int = -1,  # this step, counted from 0, takes hang_seconds
        hang_seconds: float = 0.0,
    ) -> None: ...

class SamplingParams:
    def __init__(
        self,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: list[tuple[int, float]] = ...,
        stop: list[str] = ...,
        stop_token_ids: list[int] = ...,
        include_stop: bool = False,
        min_tokens: int = 0,
        max_tokens: int = 0,  # 0 = score the prompt only
        ignore_eos: bool = False,
        top_logprobs: int = -1,  # -1 none, 0 the chosen token's, k also the k best
    ) -> None: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
    @property
    def repetition_penalty(self) -> float: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def frequency_penalty(self) -> float: ...
    @property
    def logit_bias(self) -> list[tuple[int, float]]: ...
    @property
    def stop(self) -> list[str]: ...
    @property
    def stop_token_ids(self) -> list[int]: ...
    @property
    def include_stop(self) -> bool: ...
    @property
    def min_tokens(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def ignore_eos(self) -> bool: ...
    @property
    def top_logprobs(self) -> int: ...

class Request:
    def __init__(
        self,
        id: int,
        prompt: list[int],
        sampling: SamplingParams,
        *,
        num_samples: int = 1,
        seed: int = 0,
        prompt_logprobs: int = -1,
        score_begin: int = 0,  # positions [score_begin, score_end) go to on_logits
        score_end: int = 0,
        on_logits: Callable[[int, memoryview], object] | None = None,  # (position, float32 row)
        token_times: bool = False,  # fill SampleResult.token_times
        constraint: ConstraintTemplate | None = None,
        constraint_after: list[int] = ...,  # it holds after these ids in the output; [] = from the start
    ) -> None: ...
    @property
    def id(self) -> int: ...
    @property
    def prompt(self) -> list[int]: ...
    @property
    def sampling(self) -> SamplingParams: ...
    @property
    def num_samples(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def prompt_logprobs(self) -> int: ...
    @property
    def score_begin(self) -> int: ...
    @property
    def score_end(self) -> int: ...
    @property
    def token_times(self) -> bool: ...
    @property
    def constraint_after(self) -> list[int]: ...

class TokenLogprobs:
    @property
    def token(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def rank(self) -> int: ...  # 1-based
    @property
    def top(self) -> list[tuple[int, float]]: ...  # best first

class SampleResult:
    @property
    def tokens(self) -> list[int]: ...
    @property
    def text(self) -> str: ...
    @property
    def finish_reason(self) -> Literal["stop", "length", "context", "error", "aborted"]: ...
    @property
    def stop_string(self) -> str: ...  # empty = none matched
    @property
    def stop_token(self) -> int: ...  # -1 = none
    @property
    def token_times(self) -> list[float]: ...  # of each token: time.monotonic() when its step ended
    # not_started: the output never had constraint_after. complete: the text fits, whatever ended it.
    @property
    def constraint_state(self) -> Literal["none", "not_started", "incomplete", "complete"]: ...
    @property
    def logprobs(self) -> list[TokenLogprobs]: ...

class Completion:
    @property
    def id(self) -> int: ...
    @property
    def samples(self) -> list[SampleResult]: ...
    @property
    def prompt_logprobs(self) -> list[TokenLogprobs]: ...  # positions 1.. of the prompt
    @property
    def error(self) -> str: ...  # not empty = the request failed
    @property
    def error_retryable(self) -> bool: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_cached_tokens(self) -> int: ...
    @property
    def num_preemptions(self) -> int: ...
    @property
    def submit_time(self) -> float: ...  # time.monotonic() at try_submit
    @property
    def queue_seconds(self) -> float: ...
    @property
    def first_token_seconds(self) -> float: ...
    @property
    def total_seconds(self) -> float: ...

class Engine:
    # Runs its own thread without the GIL. Keeps executor and pool alive; stops when collected.
    def __init__(
        self,
        executor: Executor,
        pool: ThreadPool,
        token_table: TokenTable,
        *,
        num_blocks: list[int],  # per cache group of the executor
        max_num_seqs: int = 64,
        max_step_tokens: int = 512,
        prefill_chunk: int = 512,
        max_context: int = 0,  # 0 = the model's limit
        prefix_cache: bool = True,
        jump_forward: bool = True,  # what a constraint forces is computed together; the same results
        ask_above: int = 512,  # tokens that a mask allows; the next is made only if needed; the same results
        look_ahead: int = 256,  # requests in a row that are admitted longest first; 1 = by arrival
        async_scheduling: bool = True,
        tune_steps: bool = False,  # tries smaller step budgets, stays with the cheapest; the same results
        step_costs: str = "",  # of an earlier engine
        max_waiting: int = 256,
        max_finished: int = 1024,
        eos_token_ids: list[int] = ...,
        debug_preempt_every: int = 0,
        debug_busy_wait: float = 0.0,
        debug_checks: bool = False,
    ) -> None: ...
    # False = the waiting queue is full: poll, then try again. NativeError bad_request = it can never run.
    def try_submit(self, request: Request) -> bool: ...
    # Waits at most timeout_s for the first completion. Raises what ended the loop, once nothing is left.
    def poll(self, max: int, timeout_s: float) -> list[Completion]: ...
    def abort(self, id: int) -> None: ...  # completes it with finish_reason "aborted"
    def abort_all(self) -> None: ...
    def abort_unstarted(self) -> None: ...  # the queue; what runs goes on
    def stop(self) -> None: ...
    def try_stop(self, timeout_s: float) -> bool: ...  # False = its step does not end: end the process
    def describe(self) -> str: ...  # JSON for people; works while a step hangs
    def stats(self) -> dict[str, int | float]: ...
    def step_costs(self) -> str: ...  # to keep; empty = nothing new was measured
    def check_integrity(self) -> None: ...

# --- CPU ------------------------------------------------------------------------------------------

class CpuExecutor(Executor):
    # Binds and packs the model's weights; keeps file and pool alive.
    def __init__(
        self,
        tensor_file: TensorFile,
        pool: ThreadPool,
        *,
        precision: str = "precise",  # precise, fast, bf16, fp32
        kv_dtype: str = "f16",  # f16, bf16, f32, int8
        residual_threshold: float = 3.5,  # precise: which blocks of activations get 16 bits
        isa: str | None = None,  # a kernel level; None or "auto": DEEPINFER_ISA or the best
        block_tokens: int = 32,  # tokens per cache block, a multiple of 16
    ) -> None: ...
    @property
    def info(self) -> dict[str, Any]: ...  # family name vocab_size ... weight_bytes isa

def cpu_isa_levels() -> list[str]: ...  # that this CPU can run, simplest first
def default_isa() -> str: ...  # the fastest, or DEEPINFER_ISA
def kernel_self_test() -> list[tuple[str, str, bool, str]]: ...  # (kernel, level, ok, detail)
def supported_architectures() -> list[str]: ...
def available_memory_bytes() -> int: ...
def dram_read_gbps(seconds: float, pool: ThreadPool) -> float: ...
def dequantize(dtype: str, blocks: bytes) -> bytes: ...  # float32 bytes of a weight type's blocks

# --- quality --------------------------------------------------------------------------------------

# (KL(base || other) in nats, most likely token of each) of two rows of float32 logits
def logit_divergence(base: memoryview, other: memoryview) -> tuple[float, int, int]: ...

# --- measurement ----------------------------------------------------------------------------------
# Best wall time. Results are (rows, seconds of a call, bytes it must read, operations of it).

# 10^9 operations per second in registers; kind: int8, bf16 or fp32; 0 = not known here
def peak_gops(kind: str, seconds: float, pool: ThreadPool) -> float: ...
def measure_linear(
    dtype: str,
    n: int,
    k: int,
    rows: list[int],
    pool: ThreadPool,
    *,
    precision: str = "precise",
    isa: str = "",
    seconds: float = 0.05,
    rotated_bytes: int = 0,
) -> list[tuple[int, float, int, float]]: ...
def measure_attention(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    num_sequences: int,
    context: int,
    new_tokens: int,
    pool: ThreadPool,
    *,
    kv_dtype: str = "f16",
    block_tokens: int = 32,
    isa: str = "",
    seconds: float = 0.05,
    rotated_bytes: int = 0,
) -> tuple[int, float, int, float]: ...
def measure_rows(  # kernel: rms_norm, swiglu, prepare_int8, prepare_bf16, prepare_fp32
    kernel: str,
    width: int,
    num_rows: int,
    pool: ThreadPool,
    *,
    isa: str = "",
    seconds: float = 0.05,
) -> tuple[int, float, int, float]: ...
