"""`deepinfer eval ppl`: perplexity by text, and with --reference what a build lost against its base."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deepinfer_cli.config.run_config import Origin, RunConfig
from deepinfer_cli.config.settings import all_settings
from deepinfer_cli.console import Console
from deepinfer_cli.errors import EXIT_OK, InputError, UsageError
from deepinfer_cli.models.types import LoadedModel
from deepinfer_cli.results.durable import replace_text

if TYPE_CHECKING:
    from deepinfer_cli.eval.quality.windows import Text, Window
    from deepinfer_cli.eval.verbs import Options

ALL: Final = "all texts"


def measure(paths: Sequence[str], config: RunConfig, options: Options, console: Console) -> int:
    """Prints a table; writes JSON with -o FILE. Files named replace the built-in texts."""
    from deepinfer_cli.eval.quality import windows as texts_and_windows

    texts = texts_and_windows.read_texts(paths) if paths else texts_and_windows.built_in_texts()
    precisions = _precisions(config, options)
    output = config.output.output
    if output is not None and Path(output).exists() and not config.output.overwrite:
        raise UsageError(f"the output {output} exists", "--overwrite replaces it")
    result = _Measurement(config, options, console, texts).run(precisions)
    console.print_data("\n".join(table(result)))
    if output is not None:
        replace_text(Path(output), json.dumps(result, ensure_ascii=False, indent=1) + "\n")
    return EXIT_OK


def _precisions(config: RunConfig, options: Options) -> list[str]:
    """The precision set, then those to be shown beside it."""
    choices = all_settings()["precision"].choices
    beside = [p.strip() for p in (options.beside or "").split(",") if p.strip()]
    for name in (*beside, *([options.reference_precision] if options.reference_precision else [])):
        if name not in choices:
            raise UsageError(f"there is no precision {name!r}", f"precisions: {', '.join(choices)}")
    return list(dict.fromkeys([config.engine.precision, *beside]))


class _Measurement:
    def __init__(self, config: RunConfig, options: Options, console: Console, texts: Sequence[Text]) -> None:
        self._config = config
        self._options = options
        self._console = console
        self._texts = texts

    def run(self, precisions: Sequence[str]) -> dict[str, Any]:
        from deepinfer_cli.engine.batch_run import load_model
        from deepinfer_cli.eval.quality.windows import cut

        model = load_model(self._config, self._console)
        windows = cut(self._texts, model.tokenizer, self._window(model))
        has_bos = windows[0].token_ids[0] == model.tokenizer.bos_token_id and model.tokenizer.adds_bos
        bos = "BOS first" if has_bos else "no BOS"
        self._console.info(
            f"{model.name}: {len(self._texts)} texts in {len(windows)} windows of at most "
            f"{self._window(model)} tokens, {bos}"
        )
        result: dict[str, Any] = {
            "schema_version": 1,
            "model": {"name": model.name, "fingerprint": model.fingerprint, **model.description},
            "window": self._window(model),
            "bos": has_bos,
            "kv_dtype": self._config.engine.kv_dtype,
            "perplexity": {},
            "reference": None,
        }
        for precision in precisions:
            result["perplexity"][precision] = self._perplexity(precision, windows)
        if self._options.reference is not None:
            result["reference"] = self._against(self._options.reference, model, windows)
        return result

    def _window(self, model: LoadedModel) -> int:
        return min(self._options.window, self._config.engine.max_model_len or model.max_context)

    def _with(self, **values: Any) -> RunConfig:
        return self._config.with_values(values, Origin("cli", "eval ppl"))

    def _perplexity(self, precision: str, windows: Sequence[Window]) -> dict[str, Any]:
        from deepinfer_cli.engine.batch_run import load_model
        from deepinfer_cli.eval.quality.measure import Likelihood, engine_on, likelihoods

        config = self._with(precision=precision)
        with engine_on(load_model(config, self._console), config) as engine:
            found = likelihoods(engine, windows)
        total = Likelihood()
        for part in found.values():
            total.num_tokens += part.num_tokens
            total.num_characters += part.num_characters
            total.log_probability += part.log_probability
        by_name = {**found, ALL: total} if len(found) > 1 else found
        return {name: part.as_json() for name, part in by_name.items()}

    def _against(self, name: str, model: LoadedModel, windows: Sequence[Window]) -> dict[str, Any]:
        from deepinfer_cli.engine.batch_run import load_model
        from deepinfer_cli.eval.quality.measure import Divergence, divergences, engine_on

        precision = self._options.reference_precision or "fp32"
        base_config = self._with(model=name, revision=None, precision=precision)
        base = load_model(base_config, self._console)
        self._check_same_tokens(base, model)
        self._console.info(f"comparing with {base.name} in {precision}, position by position")
        with engine_on(base, base_config) as first, engine_on(model, self._config) as second:
            found = divergences(first, second, windows)
        total = Divergence()
        for part in found.values():
            total.kls += part.kls
            total.num_same_top += part.num_same_top
        by_name = {**found, ALL: total} if len(found) > 1 else found
        return {
            "name": base.name,
            "fingerprint": base.fingerprint,
            "precision": precision,
            "of_precision": self._config.engine.precision,
            "divergence": {domain: part.as_json() for domain, part in by_name.items()},
        }

    def _check_same_tokens(self, base: LoadedModel, model: LoadedModel) -> None:
        """A divergence means something only over the same tokens."""
        same = base.tokenizer.vocab_size == model.tokenizer.vocab_size and all(
            base.tokenizer.encode(t.text) == model.tokenizer.encode(t.text) for t in self._texts
        )
        if not same:
            raise InputError(
                f"{base.name} and {model.name} have different tokenizers: nothing to compare",
                "compare bits_per_character, which `deepinfer eval ppl` prints for each",
            )


def table(result: Mapping[str, Any]) -> list[str]:
    """For people: perplexities with one column per precision, then the divergence from the base."""
    by_precision = result["perplexity"]
    precisions = list(by_precision)
    domains = list(by_precision[precisions[0]])
    width = max(len("perplexity"), *map(len, domains))
    lines = [
        f"{'perplexity':<{width}}  {'tokens':>7}" + "".join(f"  {p:>9}" for p in precisions) + "  bits/char"
    ]
    for domain in domains:
        first = by_precision[precisions[0]][domain]
        values = "".join(f"  {by_precision[p][domain]['perplexity']:>9.4f}" for p in precisions)
        lines.append(
            f"{domain:<{width}}  {first['num_tokens']:>7,}{values}  {first['bits_per_character']:>9.4f}"
        )
    reference = result["reference"]
    if reference is not None:
        lines += ["", f"{reference['of_precision']} against {reference['name']} in {reference['precision']}"]
        lines.append(
            f"{'KL, nats':<{width}}  {'places':>7}  {'mean':>10}  {'median':>10}  {'99 %':>10}  "
            f"{'largest':>10}  same top token"
        )
        for domain, part in reference["divergence"].items():
            lines.append(
                f"{domain:<{width}}  {part['num_positions']:>7,}  {part['kl_mean']:>10.3e}  "
                f"{part['kl_median']:>10.3e}  {part['kl_p99']:>10.3e}  {part['kl_max']:>10.3e}  "
                f"{100 * part['top1_agreement']:.2f} %"
            )
    return lines
