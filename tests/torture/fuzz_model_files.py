"""Fuzzes what comes with a model: the JSON files of a folder, GGUF metadata, chat templates.

    python -m tests.torture.fuzz_model_files --seconds 600

Each input goes all the way: loaded, prompts rendered, a token computed.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from deepinfer_cli.config.layers import resolve
from deepinfer_cli.errors import EXIT_REFUSED, ModelError, ResourceError
from deepinfer_cli.models.loading import load_model
from deepinfer_cli.prompts.template import ChatTemplate
from deepinfer_cli.prompts.types import PromptError, PromptInput
from tests.support.gguf_parts import Parts, packed, take_apart
from tests.support.tiny_models import TinyLlama, write_gguf, write_safetensors
from tests.torture import mutate
from tests.torture.fuzzing import main

JSON_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
PROMPTS = (
    PromptInput(text="hello 12 \n<|im_end|> é🔥"),
    PromptInput(text="a" * 5000),
    PromptInput(messages=[{"role": "user", "content": "hi"}]),
)
TEMPLATES = (
    "{% for m in messages %}{{ m['role'] + ': ' + m.content|trim + '\\n' }}{% endfor %}",
    "{%- set n = namespace(x='a') -%}{% for i in range(9) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{{ messages|tojson(indent=2) }}{{ messages[::-1][0] }}{{ tools is defined }}",
    "{{ bos_token }}{% if add_generation_prompt %}{{ '%s|%d' % ('a', 1) }}{% endif %}",
)
TEMPLATE_WORDS = (
    *(
        "{{ ",
        " }}",
        "{% ",
        " %}",
        "{# ",
        "(",
        ")",
        "[",
        "]",
        "|",
        ".",
        "~",
        " + ",
        " * ",
        " ** ",
        " % ",
        "[1:]",
    ),
    *(
        "for x in ",
        "endfor",
        "if ",
        "endif",
        "set a = ",
        "macro m() ",
        "endmacro",
        "call m() ",
        "break",
        "recursive",
    ),
    *(
        "range(999999)",
        "messages",
        "loop",
        "self",
        "caller()",
        "namespace()",
        "'a' * 9999999",
        "9" * 30,
        "1e999",
    ),
    *(
        "|join",
        "|sort",
        "|list",
        "|string",
        "|replace('a', 'bb')",
        "|center(99999)",
        "|map('upper')",
        ".format(1)",
    ),
    *(
        "include 'x'",
        "import 'os' as o",
        "extends 'x'",
        "block b",
        "filter upper",
        ".__class__",
        "raise_exception(1)",
    ),
)


@cache
def _folder() -> Path:
    return write_safetensors(TinyLlama(num_layers=1), Path(tempfile.mkdtemp(prefix="fuzz-")) / "m", "F32")


@cache
def _gguf() -> Parts:
    path = Path(tempfile.mkdtemp(prefix="fuzz-")) / "m.gguf"
    return take_apart(write_gguf(TinyLlama(num_layers=1), path, "Q8_0"))


def use_model(path: Path) -> None:
    """From the files to a token. A machine that is too small for what a file claims may say so."""
    from deepinfer_cli.engine.native import NativeEngine, context_limit
    from deepinfer_cli.requests.types import SamplingValues

    config = resolve([], environ={}, config_file=None, profile=None).config
    config = replace(config, model=replace(config.model, model=str(path)))
    model = load_model(config, lambda text: None)
    config.with_model_defaults(model.generation_defaults)
    for prompt in PROMPTS:
        try:
            model.renderer.render(prompt)
        except PromptError as error:
            assert "\n" not in error.message and len(error.message) < 1000
    try:
        context = min(64, context_limit(model, None))
        engine = NativeEngine(model, config.engine, max_context=context, max_tokens_cap=8)
    except ResourceError as error:
        raise ModelError(error.message, error.hint, exit_code=EXIT_REFUSED) from None
    engine.try_submit(engine.request(0, [5, 6, 7], SamplingValues(max_tokens=2, top_logprobs=3), 1))
    assert engine.poll(1, 20.0), "the engine gives no answer"
    engine.close()


def folder_file(data: bytes) -> None:
    """ "NAME\\n" and the bytes of that file, in a folder whose others are right."""
    name, _, content = data.partition(b"\n")
    with tempfile.TemporaryDirectory() as scratch:
        for file in _folder().iterdir():
            (Path(scratch) / file.name).symlink_to(file)
        target = Path(scratch) / name.decode()
        target.unlink(missing_ok=True)
        target.write_bytes(content)
        use_model(Path(scratch))


def make_folder_file(rng: random.Random) -> bytes:
    name = rng.choice(JSON_FILES)
    document = json.loads((_folder() / name).read_text())
    made = json.dumps(mutate.value(rng, document))
    if rng.random() < 0.1:
        made = mutate.text(rng, (made,), ("{", "}", "[", "]", ",", '"', "\\", "\0", "9" * 5000), len(made))
    return name.encode() + b"\n" + made.encode("utf-8", "surrogatepass")


def gguf_metadata(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "m.gguf"
        path.write_bytes(data)
        use_model(path)


def make_gguf_metadata(rng: random.Random) -> bytes:
    parts = _gguf()
    metadata = dict(parts.metadata)
    for _ in range(rng.randint(1, 3)):
        key = rng.choice(list(metadata))
        odd: Any = rng.choice(
            (True, 0, 1, 3, 33, 2**31, 2**63, 2**64 - 1, -1, 0.0, float("nan"), "", "x", [1], ["a"])
        )
        if rng.random() < 0.3:
            stored = bytearray(metadata[key])
            stored[rng.randrange(len(stored))] = rng.randrange(256)
            metadata[key] = bytes(stored)
        elif rng.random() < 0.2:
            del metadata[key]
        else:
            metadata[key] = packed(odd)
    tensors = list(parts.tensors)
    if rng.random() < 0.3:
        at = rng.randrange(len(tensors))
        dims = tuple(rng.choice((d, d + 1, d * 2, 0, 1, 2**40, 2**63)) for d in tensors[at].dims)
        offset = rng.choice((tensors[at].offset, 0, 32, 2**63, len(parts.data)))
        tensors[at] = replace(tensors[at], dims=dims, offset=offset, kind=rng.choice((0, 1, 8, 12, 99)))
    with tempfile.TemporaryDirectory() as scratch:
        path = replace(parts, metadata=metadata, tensors=tuple(tensors)).write(Path(scratch) / "m.gguf")
        return path.read_bytes()


def template(data: bytes) -> None:
    try:
        made = ChatTemplate(data.decode("utf-8", "surrogatepass"), {"bos_token": "<s>"})
    except ValueError as error:
        raise ModelError(str(error)) from None
    try:
        made.render([{"role": "user", "content": "hello " * 50}], tools=[{"type": "function"}])
    except PromptError as error:
        raise ModelError(error.message) from None


def make_template(rng: random.Random) -> bytes:
    return mutate.text(rng, TEMPLATES, TEMPLATE_WORDS, 4000).encode("utf-8", "surrogatepass")


TARGETS = {
    "folder_file": (folder_file, make_folder_file),
    "gguf_metadata": (gguf_metadata, make_gguf_metadata),
    "template": (template, make_template),
}

if __name__ == "__main__":
    try:
        code = main(__doc__, TARGETS)
    finally:
        for made in (_folder, _gguf):
            if made.cache_info().currsize and made is _folder:
                shutil.rmtree(_folder().parent)
    sys.exit(code)
