"""Writes texts.jsonl from prose.txt, code.txt and chat.txt.

    python -m tests.texts.make_texts MODEL.gguf

Tokens are llama.cpp's for the model. Each chat is the model's chat format around one question, answered by
transformers in fp32 on the dequantised weights, greedily. Answers already in texts.jsonl are kept, so that
the file only changes where a source changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from deepinfer_cli.bench.peers.llama_cpp import LlamaCpp
from tests.support import hf_llama
from tests.support.fixed_texts import (
    MAX_TOKENS,
    MIN_TOKENS,
    TEXTS,
    choose_positions,
    read_sections,
    source_of,
)

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
HEADER = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
QUESTION_END = "<|im_end|>\n<|im_start|>assistant\n"
END_OF_TURN = 2


def answer(model, tokens: list[int], num_tokens: int) -> list[int]:
    import torch

    with torch.inference_mode():
        out = model.generate(
            torch.tensor([tokens]),
            attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
            max_new_tokens=num_tokens,
            do_sample=False,
            eos_token_id=END_OF_TURN,
            pad_token_id=END_OF_TURN,
        )
    generated = out[0, len(tokens) :].tolist()
    return generated[:-1] if generated[-1] == END_OF_TURN else generated


def main(model_path: Path) -> None:
    import torch

    tokenizer = LlamaCpp(model_path)
    model = hf_llama.load(model_path)
    torch.set_num_threads(1)
    known = {}
    if TEXTS.exists():
        known = {r["name"]: r for r in map(json.loads, TEXTS.read_text(encoding="utf-8").splitlines())}
    records = []
    for kind in ("prose", "code", "chat"):
        for name, source in read_sections(source_of(kind)).items():
            num_header, text = 0, source
            if kind == "chat":
                num_header = len(tokenizer.tokenize(HEADER, parse_special=True))
                text = HEADER + source + QUESTION_END
            tokens = tokenizer.tokenize(text, parse_special=kind == "chat")
            if kind == "chat":
                before = known.get(name, {"tokens": []})["tokens"]
                if before[: len(tokens)] == tokens:
                    tokens = before
                else:
                    tokens += answer(model, tokens, num_header + MAX_TOKENS - len(tokens))
            tokens = tokens[: num_header + MAX_TOKENS]
            if len(tokens) - num_header < MIN_TOKENS:
                print(f"{name}: only {len(tokens) - num_header} tokens", file=sys.stderr)
            records.append(
                {
                    "name": name,
                    "kind": kind,
                    "text": text,
                    "tokens": tokens,
                    "num_header": num_header,
                    "positions": choose_positions(name, num_header, len(tokens)),
                }
            )
            print(name, len(tokens), file=sys.stderr)
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    TEXTS.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
