from deepinfer_cli import _native


def test_native_module_raises_its_own_error_type() -> None:
    assert issubclass(_native.NativeError, RuntimeError)
