"""A model ready to run: files opened, tokenizer and template built, weights not yet touched."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.errors import EXIT_REFUSED, ModelError, ResourceError, in_short
from deepinfer_cli.models.families import Family, family_of_config, family_of_gguf, supported_text
from deepinfer_cli.models.fit import (
    WORKING_BYTES,
    config_shape,
    free_memory,
    gguf_shape,
    human_bytes,
    split_files,
)
from deepinfer_cli.models.headers import ModelFile, cpu_executor, open_model_file
from deepinfer_cli.models.resolve import ModelPath, resolve_model
from deepinfer_cli.prompts.budget import MAX_TEMPLATE_BYTES
from deepinfer_cli.prompts.render import ChatRenderer
from deepinfer_cli.prompts.template import ChatTemplate
from deepinfer_cli.tokenizer.folder import (
    folder_eos_token_ids,
    folder_tokenizer,
    read_json_object,
    spelling_of,
)
from deepinfer_cli.tokenizer.gguf import gguf_eos_token_ids, gguf_tokenizer
from deepinfer_cli.tokenizer.library import LibraryTokenizer, TokenizerError

# generation_config.json keys that are settings here too.
GENERATION_KEYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
SPECIAL_NAMES = ("bos", "eos", "unk", "pad", "sep", "cls", "mask")


class FileModel:
    """Implements deepinfer_cli.models.types.LoadedModel for GGUF files and safetensors folders."""

    end_of_thinking: Sequence[int] = ()  # of no family that is built

    def __init__(self, where: ModelPath, config: RunConfig) -> None:
        self._where = where
        self._config = config
        self._file = open_model_file(where.path)
        self._folder = where.path if where.path.is_dir() else where.path.parent
        self._family = self._find_family()
        if self.is_gguf and (count := split_files(self._file.metadata)) > 1:
            raise ModelError(
                f"{where.path}: the model is split into {count} GGUF files; only whole files are read",
                "llama.cpp's gguf-split --merge makes one file of them",
            )
        self.name = where.name
        self.family = self._family.name
        self._shape = gguf_shape(self._file.metadata) if self.is_gguf else config_shape(self._file.metadata)
        self.max_context = self._max_context()
        vocab_size = self._file.rows_of("token_embd.weight", "model.embed_tokens.weight")
        try:
            self.tokenizer = self._load_tokenizer(config.model.tokenizer)
            self.eos_token_ids: Sequence[int] = self._find_eos()
            self.generation_defaults: Mapping[str, Any] = self._find_generation_defaults()
            template = self._load_template(config.model.chat_template)
        except TokenizerError as error:
            what = f"{self.name}: {in_short(str(error))}"
            raise ModelError(what, "--tokenizer names another one") from error
        self._file = self._file.without_lists()
        self.tokenizer.pad_to(vocab_size or 0)
        self.renderer = ChatRenderer(self.tokenizer, template, vocab_size or self.tokenizer.vocab_size)

    @property
    def is_gguf(self) -> bool:
        return self._file.format == "gguf"

    @property
    def file(self) -> ModelFile:
        return self._file

    @cached_property
    def fingerprint(self) -> str:
        from deepinfer_cli.models.fingerprint import weights_fingerprint

        return weights_fingerprint(self._file)

    @property
    def description(self) -> Mapping[str, Any]:
        types: dict[str, int] = {}
        for tensor in self._file.tensors:
            types[tensor.dtype] = types.get(tensor.dtype, 0) + 1
        return {
            "format": self._file.format,
            "family": self.family,
            "files": [Path(path).name for path in self._file.files],
            "source": self._where.source,
            "revision": self._where.revision,
            "bytes": self._file.num_bytes,
            "kv_bytes_per_token": self._shape.kv_bytes_per_token,
            "tensor_types": types,
            "tokenizer": self.tokenizer.kind,
        }

    def make_executor(self, pool: Any) -> Any:
        self._check_memory()
        engine = self._config.engine
        return cpu_executor(
            self._file,
            pool,
            precision=engine.precision,
            residual_threshold=engine.residual_threshold,
            kv_dtype=engine.kv_dtype,
            isa=engine.isa,
            block_tokens=engine.kv_block_tokens,
        )

    def _check_memory(self) -> None:
        """Before anything is packed: are there enough free bytes for the weights?"""
        free = free_memory()
        needed = self._file.num_bytes + WORKING_BYTES
        if free and needed > free:
            raise ResourceError(
                f"{self.name}: its weights need {human_bytes(needed)} of memory and {human_bytes(free)} are "
                "free",
                "take a file with smaller tensor types (Q4_K, Q4_0), or end other programs",
                exit_code=EXIT_REFUSED,
            )
        limit = self._config.engine.max_memory
        if limit and self._file.num_bytes > limit:
            raise ResourceError(
                f"{self.name}: its weights alone need {human_bytes(self._file.num_bytes)} of memory and "
                f"max_memory is {human_bytes(limit)}",
                "raise --max-memory, or take a file with smaller tensor types (Q4_K, Q4_0)",
                exit_code=EXIT_REFUSED,
            )

    # -- what the files say -------------------------------------------------------------------------

    def _find_family(self) -> Family:
        metadata = self._file.metadata
        if self.is_gguf:
            name = metadata.get("general.architecture")
            family = family_of_gguf(str(name))
        else:
            names = metadata.get("architectures")
            name = names[0] if isinstance(names, list) and names else None
            family = family_of_config([str(name)])
        if family is None:
            named = in_short(str(name)) if name else ""
            what = f"the architecture {named} is not supported" if named else "no architecture is named"
            raise ModelError(f"{self._where.path}: {what}", f"supported: {supported_text()}")
        return family

    def _max_context(self) -> int:
        value = self._shape.max_context
        if not 0 < value < 2**31:
            key = "context_length" if self.is_gguf else "max_position_embeddings"
            raise ModelError(f"{self._where.path}: {key} is missing or is not a number of tokens")
        return value

    def _load_tokenizer(self, override: str | None) -> LibraryTokenizer:
        if override is not None:
            path = Path(override).expanduser()
            return folder_tokenizer(path.parent if path.name == "tokenizer.json" else path)
        return gguf_tokenizer(self._file.metadata) if self.is_gguf else folder_tokenizer(self._folder)

    def _find_eos(self) -> list[int]:
        if self.is_gguf and self._config.model.tokenizer is None:
            return gguf_eos_token_ids(self._file.metadata, self.tokenizer)
        return folder_eos_token_ids(self._folder, self.tokenizer)

    def _find_generation_defaults(self) -> dict[str, Any]:
        if self.is_gguf:
            return {}
        given = read_json_object(self._folder / "generation_config.json")
        return {key: given[key] for key in GENERATION_KEYS if given.get(key) is not None}

    def _load_template(self, override: str | None) -> ChatTemplate | None:
        source, origin = self._template_source(override)
        if source is None:
            return None
        try:
            return ChatTemplate(source, self._special_spellings())
        except ValueError as error:
            raise ModelError(
                f"{origin}: the chat template does not compile: {error}", "--chat-template names another one"
            ) from error

    def _template_source(self, override: str | None) -> tuple[str | None, str]:
        if override is not None:
            return _read_template(Path(override).expanduser()), override
        if self.is_gguf:
            source = self._file.metadata.get("tokenizer.chat_template")
            return (source if isinstance(source, str) and source else None), str(self._where.path)
        beside = self._folder / "chat_template.jinja"
        if beside.is_file():
            return _read_template(beside), str(beside)
        config = read_json_object(self._folder / "tokenizer_config.json")
        return _default_template(config.get("chat_template")), str(self._folder / "tokenizer_config.json")

    def _special_spellings(self) -> dict[str, str]:
        """bos_token, eos_token, ...: the names that templates use, and what they stand for."""
        if self.is_gguf:
            spellings = {}
            for name in SPECIAL_NAMES:
                key = {"unk": "unknown", "pad": "padding", "sep": "seperator"}.get(name, name)
                token_id = self._file.metadata.get(f"tokenizer.ggml.{key}_token_id")
                if isinstance(token_id, int) and 0 <= token_id < self.tokenizer.vocab_size:
                    spellings[f"{name}_token"] = self.tokenizer.token_bytes[token_id].decode(
                        "utf-8", "replace"
                    )
            return spellings
        files = ("special_tokens_map.json", "tokenizer_config.json")
        found: dict[str, str] = {}
        for file in files:
            given = read_json_object(self._folder / file)
            for name in SPECIAL_NAMES:
                spelling = spelling_of(given.get(f"{name}_token"))
                if spelling is not None:
                    found[f"{name}_token"] = spelling
        return found


def load_model(config: RunConfig, say: Callable[[str], None] | None = None) -> FileModel:
    """The model that the settings name, or the small one. `say` gets the talk on the way."""
    where = resolve_model(config.model.model, config.model.revision, say or _say_on_stderr)
    model = FileModel(where, config)
    for warning in model.tokenizer.warnings:
        (say or _say_on_stderr)(f"{model.name}: {warning}")
    return model


def _say_on_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def _read_template(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEMPLATE_BYTES + 1)
        if len(data) > MAX_TEMPLATE_BYTES:
            raise ModelError(f"{path}: a chat template of over {MAX_TEMPLATE_BYTES:,} bytes is refused")
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: the chat template cannot be read: {error}") from error
    if path.suffix == ".json":
        try:
            return _default_template(json.loads(text).get("chat_template")) or ""
        except (ValueError, AttributeError, RecursionError) as error:
            raise ModelError(f"{path}: no chat_template in this JSON file") from error
    return text


def _default_template(value: Any) -> str | None:
    """tokenizer_config.json has one template, or a list of named ones."""
    if isinstance(value, list):
        named = {e.get("name"): e.get("template") for e in value if isinstance(e, dict)}
        value = named.get("default")
    return value if isinstance(value, str) and value else None
