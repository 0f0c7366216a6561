"""GPT-2 and Llama models of Hugging Face become runs with the same outputs, and runs become such models."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.convert.certificate import Certificate, read_certificate
from regard.convert.exchange import export, import_model
from regard.errors import InputError
from tests.conftest import Command
from tests.language_models import SENTENCE, write_model

transformers = pytest.importorskip("transformers")
PROMPTS = ["The quick", "jumps over\n\n", "grüße <|endoftext|> at 27", "\ttwo  blanks "]
NEW = "transformer.h.0.attn.q_norm.weight"
TRAIN = {"hidden": 24, "heads": 3, "inner": 40, "steps": 3, "max_len": 48, "progress": False}


def load(folder: Path, place: Path, **options: Any) -> Any:
    """Import a folder, check its certificate, and return the run."""
    options = {"examples": PROMPTS, "name": "run", **options}
    run = regard.load(import_model(folder, savepath=place, progress=False, **options))
    check(read_certificate(run.folder), len(options["examples"] or [None] * 20))
    return run


def check(found: Certificate, prompts: int | None) -> None:
    """`prompts` None: a text with unknown tokens has fewer than 20."""
    assert found.logits is not None and found.weights is not None
    assert found.sentences == prompts or (prompts is None and 5 <= found.sentences <= 20)
    assert max(found.logits, found.weights, found.log_probabilities) < 1e-4
    assert found.same_tokens == found.same_greedy == 1 and found.same_beam is None
    assert "greedy" in found.missing["same_beam"]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("theirs") / "gpt2")


@pytest.fixture(scope="module")
def imported(gpt2: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(gpt2, tmp_path_factory.mktemp("runs"), name=None)


@pytest.mark.parametrize(
    "options",
    [
        {"n_positions": 200, "n_inner": 50, "activation_function": "gelu"},
        {"activation_function": "relu", "tie_word_embeddings": False},
        {"activation_function": "gelu_pytorch_tanh", "vocab_size": 320, "layer_norm_epsilon": 1e-3},
        {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True},
        {"scale_attn_weights": False, "shards": "20KB"},
        {"begin": True},
    ],
    ids=["sizes", "untied", "padded", "by_layer", "sharded", "begin"],
)
def test_variants_of_gpt2(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = write_model(tmp_path / "theirs", **options)
    assert len(list(folder.glob("*.safetensors"))) == 1 or "shards" in options
    run = load(folder, tmp_path)
    assert read_certificate(run.folder).continuation == min(100, options.get("n_positions", 160) // 2)
    assert run.model.vocabulary_layer[0].shape[0] == options.get("vocab_size", 290)
    assert (run.model.output is None) == options.get("tie_word_embeddings", True)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("llama", {"begin": True, "rms_norm_eps": 1e-3}),
        ("llama", {"num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True}),
        ("llama", {"num_key_value_heads": 1, "head_dim": 10, "attention_bias": True}),
        ("llama", {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}}),
        ("mistral", {"sliding_window": None}),
        ("mistral", {"sliding_window": 4096}),
        ("qwen2", {}),
        ("qwen2", {"sliding_window": 20, "use_sliding_window": False, "tie_word_embeddings": True}),
    ],
)
def test_variants_of_llama(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    run = load(write_model(tmp_path / "theirs", kind, **options), tmp_path)
    assert run.config.model.rotary_base == options.get("rope_parameters", {"rope_theta": 10_000.0})["rope_theta"]
    assert run.task.parse("fox").tolist()[0][:1] == [1] or not options.get("begin")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("gpt2", {"activation_function": "silu"}, "activation_function silu is not supported: choose relu, gelu"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention is on"),
        ("gpt2", {"vocab_size": 200}, "token 289 is not among the 200 outputs"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act gelu is not supported: choose silu"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
            "rope_type linear of rope_scaling is not supported",
        ),
        ("mistral", {"sliding_window": 50}, "sliding_window 50 is below max_position_embeddings 160: mistral"),
        ("qwen2", {"sliding_window": 50, "use_sliding_window": True, "max_window_layers": 0}, "sliding_window 50"),
        ("qwen3", {}, "model_type qwen3 is not supported: choose a model of marian, gpt2, llama, mistral, qwen2"),
    ],
)
def test_other_models_are_refused(tmp_path: Path, kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        import_model(write_model(tmp_path / "theirs", kind, **options), savepath=tmp_path / "runs")
    assert not (tmp_path / "runs" / "theirs").exists()


def _pickle_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def _edit_weights(edit: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        state = load_file(folder / "model.safetensors")
        edit(state)
        save_file(state, folder / "model.safetensors", {"format": "pt"})

    return change


def _change_config(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        (folder / "config.json").write_text(json.dumps({**config, **values}), "utf-8")

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_pickle_weights, "are pickled, which can run code"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no model.safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 50), "cannot be loaded: transformers says"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer.json: save the model's tokenizer"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "cannot be loaded"),
        (
            _edit_weights(lambda state: state.update({NEW: torch.ones(8)})),
            f"parameter {NEW} in .* is not a parameter of",
        ),
        (_edit_weights(lambda state: state.pop(min(state))), "is missing from its weights; download the folder again"),
        (_change_config(n_embd=48), "cannot be loaded"),
        (_change_config(n_head=5), "cannot be loaded|cannot be split"),
        (_change_config(n_layer="two"), "cannot be loaded"),
        (_change_config(layer_norm_epsilon=-1.0), "norm_epsilon -1.0 is out of range"),
    ],
)
def test_damaged_folders_are_refused(
    gpt2: Path, tmp_path: Path, command: Command, damage: Callable[[Path], None], message: str
) -> None:
    folder = Path(shutil.copytree(gpt2, tmp_path / "theirs"))
    damage(folder)
    status, _, err = command("import", folder, "--savepath", tmp_path / "runs")
    assert status == 2 and re.search(message, err.strip().splitlines()[-1]) and "Traceback" not in err
    assert not (tmp_path / "runs" / "theirs").exists()


def test_imported_run_continues_like_transformers(gpt2: Path, imported: Any) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(gpt2, attn_implementation="eager")
    tokenizer = transformers.AutoTokenizer.from_pretrained(gpt2)
    tokens = tokenizer("The quick", return_tensors="pt").input_ids
    answer = model.generate(tokens, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert imported.generate("The quick", new=12)[0][0].tokens == answer[0, tokens.shape[1] :].tolist()
    assert "".join(imported.task.labels(imported.task.parse("a fox\n")[0])) == "a▁fox\\n"
    assert imported.task.render(imported.task.parse(SENTENCE)[0]) == SENTENCE
    weights = model(tokens, output_attentions=True).attentions
    for layer, expected in zip(imported.attend("The quick").layers.values(), weights, strict=True):
        assert torch.allclose(torch.as_tensor(layer.weights), expected[0], atol=1e-5)


def test_without_text_random_tokens_are_compared(gpt2: Path, tmp_path: Path, command: Command) -> None:
    status, out, err = command("import", gpt2, "--savepath", tmp_path)
    assert status == 0 and "20 prompts in both programs" in out and "continuation by 80 tokens for 100%" in out
    assert "both programs read random tokens" in err
    assert "attn_pdrop 0.1 is left out" in err
    check(read_certificate(tmp_path / "gpt2"), 20)


def test_training_of_an_imported_run_continues(gpt2: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(SENTENCE * 100, "utf-8")
    run = load(gpt2, tmp_path, valid=[text], examples=None)
    before = run.test(samples=4, seed=1)
    flags = {"steps": 20, "batchsize": 4, "lr": 0.003, "valid_share": 0.5, "progress": False}
    tuned: Any = regard.train("text", text=str(text), start_from=run.folder, savepath=tmp_path, **flags)
    assert tuned.test(samples=4, seed=1).loss < before.loss - 0.5
    with pytest.raises(InputError, match="tokenizer imported comes with an imported model"):
        regard.train("text", text=str(text), tokenizer="imported", savepath=tmp_path / "new", progress=False)


def test_export_of_an_import_equals_the_original(gpt2: Path, imported: Any, tmp_path: Path) -> None:
    folder = export(imported, tmp_path / "out", to="huggingface", license="mit", examples=PROMPTS, progress=False)
    check(read_certificate(folder), 4)
    ours, theirs = (transformers.AutoModelForCausalLM.from_pretrained(path) for path in (folder, gpt2))
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    assert all(torch.equal(ours.state_dict()[name], tensor) for name, tensor in theirs.state_dict().items())
    assert ours.generation_config.eos_token_id == 0 and ours.config.eos_token_id == 0
    tokenizers = [transformers.AutoTokenizer.from_pretrained(path) for path in (folder, gpt2)]
    assert len({tuple(tokenizer(SENTENCE).input_ids) for tokenizer in tokenizers}) == 1
    assert tokenizers[0].eos_token == "<|endoftext|>" and "text-generation" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    "flags",
    [
        {"tokenizer": "characters", "bias": True, "activation": "gelu_tanh", "tied": False},
        {"tokenizer": "bpe", "vocab_size": 120, "positions": "none", "activation": "relu"},
        {"tokenizer": "unigram", "vocab_size": 120, "feed_forward": False},
        {
            "tokenizer": "bpe",
            "vocab_size": 120,
            "positions": "rotary",
            "norm": "rms",
            "activation": "swiglu",
            "head_size": 10,
            "key_value_heads": 1,
            "rotary_base": 500.0,
            "bias": True,
        },
        {"norm": "rms", "positions": "rotary", "feed_forward": False, "tied": False},
    ],
)
def test_exported_text_models(tmp_path: Path, flags: dict[str, Any]) -> None:
    text = tmp_path / "text.txt"
    text.write_text(SENTENCE.replace("<|endoftext|>", "  and") * 40, "utf-8")
    run: Any = regard.train("text", text=str(text), savepath=tmp_path, **{**TRAIN, **flags})
    folder = export(run, tmp_path / "out", to="huggingface", license="mit", progress=False)
    check(read_certificate(folder), 20 if flags.get("tokenizer") in ("characters", None) else None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    prompt = "quick brown\n\njumps"
    tokens = tokenizer(prompt, return_tensors="pt").input_ids
    answer = model.generate(tokens, max_new_tokens=9, do_sample=False)[0]
    best = run.generate(prompt, new=9)[0][0]
    assert best.tokens == answer[tokens.shape[1] :].tolist()
    assert tokenizer.decode(answer, skip_special_tokens=True).startswith(prompt)
    again = load(folder, tmp_path / "again", examples=["quick brown\n\njumps", "fox"])
    ours, theirs = run.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(theirs[name], tensor) for name, tensor in ours.items())


def test_exported_induction_model(tmp_path: Path) -> None:
    run: Any = regard.train("induction", savepath=tmp_path, steps=3, progress=False)
    folder = export(run, tmp_path / "out", to="huggingface", license="mit", progress=False)
    check(read_certificate(folder), 20)
    assert transformers.AutoTokenizer.from_pretrained(folder)("BAD").input_ids == [1, 0, 3]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"norm": "rms"}, "positions learned is not rotary, which Llama models require"),
        ({"positions": "sinusoidal"}, "positions sinusoidal is not learned or none, which GPT-2 models require"),
        ({"key_value_heads": 1}, "key_value_heads 1 is not supported by GPT-2 models"),
        ({"head_size": 10}, "head_size 10 is not hidden / heads"),
        ({"pre_norm": False}, "pre_norm False is not True"),
        ({"norm": "none"}, "norm none is not GPT-2's layer or Llama's rms: train with --norm layer"),
        ({"feed_forward": True, "activation": "swiglu"}, "activation swiglu is not relu or gelu or gelu_tanh"),
    ],
)
def test_unsupported_runs_are_refused(tmp_path: Path, flags: dict[str, Any], message: str) -> None:
    run: Any = regard.train("induction", savepath=tmp_path, **{"steps": 1, "progress": False, **flags})
    with pytest.raises(InputError, match=message):
        export(run, tmp_path / "out", to="huggingface", license="mit", progress=False)
    assert not (tmp_path / "out").exists()


def test_other_programs_and_real_numbers_are_refused(tmp_path: Path, command: Command) -> None:
    regard.train("induction", savepath=tmp_path, steps=1, progress=False)
    regard.train("regression", savepath=tmp_path, steps=1, progress=False)
    for arguments, message in [
        (
            ("induction", "--to", "ctranslate2"),
            "is a language model, which cannot be exported to ctranslate2: choose huggingface",
        ),
        (("induction", "--to", "huggingface"), "give --license"),
        (("regression", "--to", "huggingface"), "reads real numbers"),
    ]:
        status, _, err = command("export", *arguments, "--savepath", tmp_path)
        assert status == 2 and message in err


def test_damaged_tokenizer_of_a_run(imported: Any, tmp_path: Path) -> None:
    from regard.data.imported_tokenizers import ImportedTokenizer

    text = imported.task.files["text"]
    assert ImportedTokenizer.from_json(text).to_json() == text
    for content in ("{}", "[", text.replace('"size": 290', '"size": 20'), text.replace('"BPE"', '"BPX"')):
        with pytest.raises(InputError, match="tokenizer is damaged"):
            ImportedTokenizer.from_json(content)
