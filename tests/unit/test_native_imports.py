"""Only a few modules may touch the extension, so that its surface stays in sight."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "deepinfer_cli"
DOORS = {
    "constraints/backend.py",
    "constraints/python_road.py",
    "engine/native.py",
    "requests/scan.py",
    "tokenizer/native_bpe.py",
    "models/fake.py",  # a model that is nothing but a native executor
    "models/headers.py",
    "bench/peers/deepinfer_speed.py",  # measures the engine alone
    "machine.py",
    "version.py",  # reports the build
}


def names_imported(node: ast.AST) -> list[str]:
    """Dotted names that an import statement or an import_module() call brings in."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module or ''}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        return [str(a.value) for a in node.args if isinstance(a, ast.Constant)]
    return []


def imports_native(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any("_native" in name.split(".") for node in ast.walk(tree) for name in names_imported(node))


def test_only_the_doors_import_the_extension() -> None:
    found = {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if imports_native(p)}
    assert "version.py" in found
    assert found <= DOORS, found - DOORS
