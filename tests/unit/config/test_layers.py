"""Who wins: command line > environment > profile > file > model > default."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deepinfer_cli.config.environment import known_variables, warnings_about
from deepinfer_cli.config.layers import FlagUse, print_config, resolve
from deepinfer_cli.config.run_config import RunConfig
from deepinfer_cli.config.settings import GROUPS, all_settings
from deepinfer_cli.errors import DeepInferError, UsageError

ROOT = Path(__file__).parents[3]

# Typing and precedence in one file; every line is a trap for a YAML 1.1 reader.
TRAPS = """\
# comment
model: some-local-model
temperature: 0.9
top_p: 0.8
min_p: 1e-5
max_tokens: 1_000
stop: [no, "off"]
logprobs: yes
seed: 0123
profiles:
  tiny: {max_tokens: 4, top_p: 0.7}
"""


@pytest.fixture
def traps(tmp_path: Path) -> str:
    path = tmp_path / "run.yaml"
    path.write_text(TRAPS)
    return str(path)


def set_(text: str) -> FlagUse:
    return FlagUse("set", "--set", text)


def test_precedence_and_typing(traps: str) -> None:
    resolved = resolve([set_("temperature=0.3")], environ={"DEEPINFER_TOP_P": "0.5"}, config_file=traps)
    config = resolved.config
    sampling = config.sampling
    assert (sampling.temperature, sampling.top_p, sampling.min_p) == (0.3, 0.5, 0.00001)
    assert sampling.stop == ("no", "off")
    assert sampling.logprobs is True
    assert (sampling.seed, sampling.max_tokens) == (123, 1000)
    assert str(config.origin("temperature")) == "cli --set temperature"
    assert str(config.origin("top_p")) == "env DEEPINFER_TOP_P"
    assert str(config.origin("min_p")) == f"file {traps}:5:1"
    assert str(config.origin("top_k")) == "default"
    assert len(resolved.notes) == 2


def test_profile_is_between_environment_and_file(traps: str) -> None:
    config = resolve(config_file=traps, profile="tiny").config
    assert (config.sampling.max_tokens, config.sampling.top_p) == (4, 0.7)
    assert str(config.origin("max_tokens")) == f"profile {traps}:11:10"
    assert resolve(config_file=traps, environ={"DEEPINFER_PROFILE": "tiny"}).config.sampling.max_tokens == 4
    config = resolve(config_file=traps, profile="tiny", environ={"DEEPINFER_MAX_TOKENS": "9"}).config
    assert config.sampling.max_tokens == 9


def test_presence_decides(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("temperature: 0.5\nchat: true\nsystem: Hello\nmax_tokens: 5\nstop: [a]\n")
    uses = [
        FlagUse("temperature", "--temperature", "0"),
        FlagUse("chat", "--no-chat", False),
        FlagUse("system", "--system", ""),
        set_("max_tokens=null"),
        set_("stop=[]"),
    ]
    config = resolve(uses, config_file=str(path)).config
    assert config.sampling.temperature == 0
    assert config.rows.chat is False
    assert config.rows.system == ""
    assert config.sampling.max_tokens is None
    assert config.sampling.stop == ()


def test_last_on_the_command_line_wins() -> None:
    flag, assignment = FlagUse("top_k", "--top-k", "5"), set_("top_k=3")
    assert resolve([flag, assignment]).config.sampling.top_k == 3
    assert resolve([assignment, flag]).config.sampling.top_k == 5


def test_repeated_flags_add_up_since_the_last_set() -> None:
    stop = [FlagUse("stop", "--stop", text) for text in ("a", "b")]
    assert resolve(stop).config.sampling.stop == ("a", "b")
    assert resolve([*stop, set_('stop=["c", no]'), stop[1]]).config.sampling.stop == ("b",)
    assert resolve([set_('stop=["c", no]')]).config.sampling.stop == ("c", "no")
    assert resolve([FlagUse("stop", "--stop", "[x]")]).config.sampling.stop == ("[x]",)


def test_lists_and_maps_in_text() -> None:
    config = resolve(
        [
            FlagUse("stop_token_ids", "--stop-token-ids", "1, 2"),
            FlagUse("stop_token_ids", "--stop-token-ids", "3"),
            FlagUse("logit_bias", "--logit-bias", "5=-1.5"),
            FlagUse("passthrough", "--passthrough", "a,b"),
        ],
        environ={"DEEPINFER_STOP": "[no, 'x, y']", "DEEPINFER_LOGIT_BIAS": "{1: 2}"},
    ).config
    assert config.sampling.stop_token_ids == (1, 2, 3)
    assert config.sampling.logit_bias == ((5, -1.5),)
    assert config.rows.passthrough == ("a", "b")
    assert config.sampling.stop == ("no", "x, y")


def test_model_defaults_stand_below_everything_said(traps: str) -> None:
    config = resolve([set_("top_k=3")], config_file=traps).config
    recommended = {"temperature": 0.2, "top_k": 50, "repetition_penalty": 1.1, "top_p": "bad", "model": "x"}
    config = config.with_model_defaults(recommended)
    assert config.sampling.temperature == 0.9
    assert config.sampling.top_k == 3
    assert config.sampling.repetition_penalty == 1.1
    assert str(config.origin("repetition_penalty")) == "model generation_config"
    assert config.model.model == "some-local-model"


MESSAGES = [
    ([set_("temprature=1")], "--set names an unknown setting 'temprature'", "did you mean `temperature`?"),
    ([set_("temperature")], "--set takes KEY=VALUE, got 'temperature'", "--set temperature=0.2"),
    ([set_("temperature=")], '--set temperature must be a number in [0, 100], got ""', None),
    (
        [FlagUse("seed", "--seed", "x")],
        '--seed must be an integer in [0, 9223372036854775807], got "x"',
        None,
    ),
    (
        [FlagUse("logit_bias", "--logit-bias", "5")],
        "--logit-bias takes TOKEN_ID=BIAS, got '5'",
        "--logit-bias 50256=-100",
    ),
    ([set_("stop=[a")], "--set stop: not valid YAML: expected ',' or ']', but got '<stream end>'", None),
    (
        [FlagUse("min_tokens", "--min-tokens", "5"), FlagUse("max_tokens", "--max-tokens", "4")],
        "min_tokens may not be above max_tokens",
        "min_tokens from cli --min-tokens, max_tokens from cli --max-tokens",
    ),
    (
        [FlagUse("output", "-o", "x"), FlagUse("errors", "--errors", "x")],
        "output and errors are the same file",
        "output from cli -o, errors from cli --errors",
    ),
]


@pytest.mark.parametrize(("uses", "message", "hint"), MESSAGES)
def test_messages(uses: list[FlagUse], message: str, hint: str | None) -> None:
    with pytest.raises(DeepInferError) as refused:
        resolve(uses)
    assert (refused.value.message, refused.value.hint) == (message, hint)
    assert refused.value.exit_code == 2


def test_numbers_that_are_none_are_refused_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("n: 1\ntop_p: .nan\n")
    with pytest.raises(DeepInferError, match=r"run.yaml:2:1: top_p must be a number in \(0, 1\], got NaN"):
        resolve(config_file=str(path))


def test_profiles_must_exist(traps: str) -> None:
    with pytest.raises(UsageError, match="the profile 'tiny' needs a config file"):
        resolve(profile="tiny")
    with pytest.raises(UsageError, match="has no profile 'huge'") as refused:
        resolve(config_file=traps, profile="huge")
    assert refused.value.hint == "profiles in this file: tiny"


def test_printed_config_is_a_config(traps: str, tmp_path: Path) -> None:
    uses = [
        set_('stop=["a: b", "#"]'),
        set_("temperature=1e-7"),
        set_("logit_bias={7: -3}"),
        set_("shard=1/4"),
        set_("fsync=null"),
    ]
    config = resolve(uses, config_file=traps).config
    text = print_config(config)
    assert f"# file {traps}:5:1" in text
    again = tmp_path / "again.yaml"
    again.write_text(text)
    assert resolve(config_file=str(again)).config.as_json() == config.as_json()
    plain = yaml.safe_load(text)  # a YAML 1.1 reader must read the same
    assert plain == config.as_json()


def test_environment_of_the_first_deepinfer() -> None:
    environ = {"DEEPINFER_HF_MODEL_DIR": "/models/x", "DEEPINFER_ACCELERATOR": "ascend"}
    config = resolve(environ=environ).config
    assert config.model.model == "/models/x"
    assert str(config.origin("model")) == "env DEEPINFER_HF_MODEL_DIR"
    assert config.engine.accelerator == "ascend"
    config = resolve(environ={**environ, "DEEPINFER_MODEL": "y"}).config
    assert config.model.model == "y"


def test_warnings_about_the_environment() -> None:
    assert warnings_about({"DEEPINFER_TOP_P": "1", "PATH": "x", "DEEPINFER_BATCH_INVARIANT": "1"}) == []
    (said,) = warnings_about({"DEEPINFER_TOPP": "1"})
    assert said[1:] == (
        "the variable DEEPINFER_TOPP is unknown and has no effect",
        "did you mean DEEPINFER_TOP_P?",
    )
    (said,) = warnings_about({"DEEPINFER_BATCH_INVARIANT": "0"})
    assert "changes nothing" in said[1]


def test_table_is_sound() -> None:
    table = all_settings()
    flags = [flag for s in table.values() for flag in (*s.flags, *s.off_flags)]
    assert len(flags) == len(set(flags))
    names = [*table, *(alias for s in table.values() for alias in s.aliases)]
    assert len(names) == len(set(names))
    assert all(hasattr(RunConfig(), group) for group in GROUPS)
    for spec in table.values():
        assert spec.help[0].isupper() or spec.help[0] == "`"
        assert not spec.help.endswith(".")
    assert len(known_variables()) > len(table)


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "runs").glob("*.yaml")), ids=lambda p: p.name)
def test_example_configs_resolve(path: Path) -> None:
    resolved = resolve(config_file=str(path))
    assert not resolved.notes
    assert resolved.config.origins
    for name in yaml.safe_load(path.read_text()).get("profiles", {}):
        assert resolve(config_file=str(path), profile=name).config.origins
