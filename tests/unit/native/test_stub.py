"""The stub file and the extension must name the same things, with the same parameters."""

import ast
import inspect
import re
from pathlib import Path

import deepinfer_cli
from deepinfer_cli import _native

STUB = Path(deepinfer_cli.__file__).with_name("_native.pyi")


def stub_tree() -> ast.Module:
    return ast.parse(STUB.read_text(encoding="utf-8"))


def public(names: object) -> set[str]:
    return {name for name in names if not name.startswith("_")}  # type: ignore[attr-defined]


def stub_names(body: list[ast.stmt]) -> set[str]:
    names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {
        node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return public(names)


def own_members(cls: type) -> set[str]:
    return public(vars(cls))


def test_module_names_match() -> None:
    assert stub_names(stub_tree().body) == public(vars(_native))


def test_class_members_match() -> None:
    for node in stub_tree().body:
        if isinstance(node, ast.ClassDef) and node.name != "NativeError":
            assert stub_names(node.body) == own_members(getattr(_native, node.name)), node.name


def parameters_of(doc: str) -> list[str]:
    """Parameter names from the first signature that nanobind writes into the docstring."""
    inner = re.match(r"\w+\((.*)\)( -> .*)?$", doc.splitlines()[0])
    assert inner is not None, doc
    flat = re.sub(r"\[[^\[\]]*\]", "", re.sub(r"\[[^\[\]]*\]", "", inner.group(1)))
    return [part.split(":")[0].strip() for part in flat.split(",") if part.strip() not in ("", "/", "*")]


def test_parameters_match() -> None:
    checked = 0
    for holder, node in functions_of_stub():
        target = getattr(holder, node.name, None)
        doc = inspect.getdoc(target) if target is not None else None
        if doc is None or not doc.startswith(f"{node.name}("):
            continue
        wanted = [arg.arg for arg in node.args.args + node.args.kwonlyargs]
        assert parameters_of(doc) == wanted, node.name
        checked += 1
    assert checked >= 8


def functions_of_stub() -> list[tuple[object, ast.FunctionDef]]:
    found: list[tuple[object, ast.FunctionDef]] = []
    for node in stub_tree().body:
        if isinstance(node, ast.FunctionDef):
            found.append((_native, node))
        elif isinstance(node, ast.ClassDef):
            holder = getattr(_native, node.name)
            found += [(holder, item) for item in node.body if isinstance(item, ast.FunctionDef)]
    return found
