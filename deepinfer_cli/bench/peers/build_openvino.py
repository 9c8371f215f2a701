"""OpenVINO GenAI in an environment of its own, and a model for it with int8 weights made from a GGUF file.

    python -m deepinfer_cli.bench.peers.build_openvino FOLDER MODEL.gguf

The environment takes 1.6 GB. The model goes the way that OpenVINO's documentation recommends: a Hugging Face
folder in fp32, here of the dequantised weights, then `optimum-cli export openvino --weight-format int8`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

from deepinfer_cli.bench.peers.build_llama_cpp import run

PACKAGES: Final = (
    "openvino==2026.4.1",
    "openvino-genai==2026.4.1",
    "openvino-tokenizers==2026.4.1",
    "optimum-intel==2.2.0",
    "nncf==3.4.0",
    "transformers==5.5.4",
    "torch==2.13.0",
    "accelerate",
    "gguf==0.19.0",
)
_TO_FOLDER: Final = """
import sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
file, out = Path(sys.argv[1]), sys.argv[2]
folder, name = str(file.parent), file.name
read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
config = read.config
if hasattr(config, "quantization_config"):
    del config.quantization_config
plain = type(read)(config)
plain.load_state_dict(read.state_dict())
plain.save_pretrained(out)
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)
"""


def build(folder: Path, model: Path) -> tuple[Path, Path]:
    """(interpreter of the environment, folder of the converted model)"""
    scripts = folder.absolute() / "env" / "bin"
    python = scripts / "python"
    done = folder / "env" / ".installed"
    if not done.exists():
        print("installing OpenVINO GenAI, 1.6 GB", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        run(sys.executable, "-m", "venv", folder / "env")
        run(python, "-m", "pip", "install", "-q", *PACKAGES)
        # Comes along uncalled for, built for another torch, and keeps transformers from starting.
        subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "torchvision"], capture_output=True)
        done.touch()
    converted = folder / f"{model.stem}-int8"
    if not (converted / "openvino_model.xml").exists():
        plain = folder / f"{model.stem}-fp32"
        if not (plain / "model.safetensors").exists():
            run(python, "-c", _TO_FOLDER, model.absolute(), plain)
        task = ("--task", "text-generation-with-past", "--weight-format", "int8")
        run(scripts / "optimum-cli", "export", "openvino", "-m", plain, *task, converted)
    return python, converted


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path)
    arguments = parser.parse_args()
    print(*build(arguments.folder, arguments.model))


if __name__ == "__main__":
    main()
