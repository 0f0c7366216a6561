"""External models as subjects: answers, loss, heads and folders."""

import copy
import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.errors import InputError
from regard.interpret.importance import importance_by_layer
from tests.conftest import Command
from tests.external.conftest import TEXTS
from tests.external.test_intervention import without_head

pytestmark = pytest.mark.filterwarnings("ignore")
Build = Callable[[str], Any]
PAIRS = [("the cat sat", "a big dog"), ("she was small", "they saw it then")]


def model_loss(name: str, model: Any, tokenizer: Any) -> float:
    """Compute the loss without Regard."""
    total, count = 0.0, 0
    for text in PAIRS if name == "bart" else TEXTS:
        if name == "bart":
            labels = tokenizer(text[1], return_tensors="pt")["input_ids"]
            found = model(**tokenizer(text[0], return_tensors="pt"), labels=labels).loss
            total, count = total + float(found) * labels.numel(), count + labels.numel()
        elif name == "bert-mlm":
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            for part in range(7):
                masked, labels = ids.clone(), ids.clone()
                masked[0, part::7] = tokenizer.mask_token_id
                labels[masked != tokenizer.mask_token_id] = -100
                if (labels != -100).any():
                    asked = int((labels != -100).sum())
                    total, count = total + float(model(masked, labels=labels).loss) * asked, count + asked
        else:
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            total += float(model(ids, labels=ids).loss) * (ids.numel() - 1)
            count += ids.numel() - 1
    return total / count


MEASURES = {
    "llama": "loss of the next tokens",
    "gptj": "loss of the next tokens",
    "bart": "loss of the targets",
    "bert-mlm": "loss of the masked tokens",
}
HEADS = {
    "llama": ("model.layers.1.self_attn", "model.layers.1.self_attn.o_proj"),
    "gptj": ("transformer.h.0.attn", "transformer.h.0.attn.out_proj"),
    "bart": ("model.decoder.layers.1.encoder_attn", "model.decoder.layers.1.encoder_attn.out_proj"),
    "bert-mlm": ("bert.encoder.layer.0.attention.self", "bert.encoder.layer.0.attention.output.dense"),
}


@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_importance_is_the_change_of_the_models_loss(model_of: Build, tokenizer: Any, name: str) -> None:
    model, (layer, output) = model_of(name), HEADS[name]
    found = regard.look(model, tokenizer).importance(PAIRS if name == "bart" else TEXTS)
    base = model_loss(name, model, tokenizer)
    assert found.loss == pytest.approx(base, abs=1e-5) and found.measure == MEASURES[name]
    for head in (0, 3):
        with without_head(model, output, head):
            assert found.added[layer][head] == pytest.approx(model_loss(name, model, tokenizer) - base, abs=1e-5)


@torch.no_grad()
def test_measure_is_named_without_labels(model_of: Build, tokenizer: Any) -> None:
    model = model_of("bert")
    subject = regard.look(model, tokenizer, inputs=TEXTS)
    found = subject.importance()
    assert found.measure == "change of the states" and found.loss == 0
    moved = []
    for text in TEXTS:
        given = tokenizer(text, return_tensors="pt")
        plain = model(**given)[0]
        with without_head(model, "encoder.layer.1.attention.output.dense", 2):
            moved.append(float((model(**given)[0] - plain).square().sum() / plain.square().sum()))
    assert found.added["encoder.layer.1.attention.self"][2] == pytest.approx(np.mean(moved), rel=1e-4)
    examined = subject.examine()
    assert len(examined.heads) == 8 and all(each.ranking is None for each in examined.heads)
    assert any("no output layer" in each for each in examined.sentences)
    assert "BertModel: 3 texts, change of the" in str(examined) and "unseen" not in str(examined) + examined.summary()
    pairs = regard.look(model_of("bart"), tokenizer).importance(["the cat sat"])
    assert pairs.measure == "loss against its own answers"


@torch.no_grad()
def test_examination_ranks_like_other_tokens(model_of: Build, tokenizer: Any) -> None:
    from regard.interpret.examination import correlation

    model = model_of("llama")
    subject = regard.look(model, tokenizer, inputs=TEXTS)
    examined, own = subject.examine(), []
    assert examined.yardstick == "other_tokens"  # the tokenizer has 19 words
    for text in TEXTS:
        measure = regard.attribute(subject, text, method="other_tokens").inputs
        with regard.record(model) as records:
            model(tokenizer(text, return_tensors="pt")["input_ids"])
        own.append(correlation(records["model.layers.0.self_attn"].weights[0, 2].numpy(), np.asarray(measure)))
    found = next(each for each in examined.heads if (each.layer, each.head) == ("model.layers.0.self_attn", 2))
    assert found.ranking is not None and found.ranking.mean == pytest.approx(np.mean(own), abs=1e-4)
    assert found.ranking.low < found.ranking.mean < found.ranking.high
    assert found.relevance is None and any("inputs are unknown" in each for each in examined.unanswered)


@pytest.mark.parametrize("name", ["llama", "bart"])
@torch.no_grad()
def test_generated_tokens_have_rows_over_all_earlier_tokens(model_of: Build, tokenizer: Any, name: str) -> None:
    model = model_of(name)
    subject = regard.look(model, tokenizer)
    found = subject.attend("the cat sat on the mat", generate=4)
    given = tokenizer("the cat sat on the mat", return_tensors="pt")
    given.pop("token_type_ids", None)
    with regard.record(model, tokenizer=tokenizer) as records:
        sequence = model.generate(**given, max_new_tokens=4, do_sample=False, num_beams=1)
    assert found.prediction == tokenizer.decode(sequence[0, -4:], skip_special_tokens=True)
    for layer, shown in found.layers.items():
        record = records[layer]
        np.testing.assert_allclose(shown.weights, record.weights[0].numpy(), atol=1e-5)
        assert shown.kind == record.kind
        queries, keys = record.labels_of(0)
        assert (shown.query_labels, shown.key_labels) == (list(queries or ()), list(keys or ()))
    scores = model(**({"input_ids": sequence} if name == "llama" else given | {"decoder_input_ids": sequence}))
    likely = scores.logits[0, -5:-1].softmax(-1)[range(4), sequence[0, -4:]]
    np.testing.assert_allclose(found.probabilities, likely.numpy(), atol=1e-5)


@torch.no_grad()
def test_target_has_a_probability_for_each_token(model_of: Build, tokenizer: Any) -> None:
    model = model_of("bart")
    subject = regard.look(model, tokenizer)
    found = subject.attend("the cat sat", target="a big dog")
    same = subject.attend("the cat sat ||| a big dog")
    labels = tokenizer("a big dog", return_tensors="pt")["input_ids"]
    likely = model(**tokenizer("the cat sat", return_tensors="pt"), labels=labels).logits[0].softmax(-1)
    np.testing.assert_allclose(found.probabilities, likely[range(3), labels[0]].numpy(), atol=1e-6)
    assert found.outputs == ["a", "big", "dog"] and found.truth == "a big dog"
    assert same.probabilities == found.probabilities and found.prediction != ""
    assert {layer.kind for layer in found.layers.values()} == {"encoder", "decoder", "cross"}
    assert found.layers["model.decoder.layers.0.encoder_attn"].key_labels == ["the", "cat", "sat"]


@torch.no_grad()
def test_a_tokenizer_without_a_mask_token_reads_texts_and_names_what_is_missing(
    model_of: Build, tokenizer: Any
) -> None:
    without = copy.deepcopy(tokenizer)
    without.mask_token = None
    subject = regard.look(model_of("bert-mlm"), without)
    assert subject.attend("the cat sat").layers
    with pytest.raises(InputError, match="the tokenizer has no mask token: pass a loss function to look"):
        subject.importance(TEXTS)


def test_masked_tokens_are_predicted(model_of: Build, tokenizer: Any) -> None:
    model = model_of("bert-mlm")
    found = regard.look(model, tokenizer).attend("the <mask> sat")
    likely = model(**tokenizer("the <mask> sat", return_tensors="pt")).logits[0, 1].softmax(-1)
    best = int(likely.argmax())
    assert found.outputs == [tokenizer.convert_ids_to_tokens(best)] or best >= 24
    assert found.probabilities == pytest.approx([float(likely.max())], abs=1e-6)


def test_images_have_patches(folders: Callable[[str], Path], tmp_path: Path) -> None:
    from PIL import Image

    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 255, (30, 20, 3), dtype=np.uint8)).save(tmp_path / "noise.png")
    subject = regard.look(folders("vit-classes"))
    found = subject.attend(tmp_path / "noise.png")
    [first, *_] = found.layers.values()
    assert first.key_labels[:3] == ["[CLS]", "0,0", "0,1"] and first.key_labels[-1] == "3,3"
    assert found.prediction == found.outputs[0] and found.prediction.startswith("LABEL_")
    worth = subject.importance([tmp_path / "noise.png"])
    assert worth.measure == "loss against its own answers" and worth.loss > 0
    with pytest.raises(InputError, match="cannot be read: give a file such as"):
        subject.attend(tmp_path / "none.png")


class CustomModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(30, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.layer(self.embed(numbers))


def test_custom_module_with_a_function() -> None:
    torch.manual_seed(0)
    model = CustomModel()

    def read(text: str) -> Tensor:
        return torch.tensor([[ord(each) % 30 for each in text]])

    def loss(model: nn.Module, text: str) -> Tensor:
        # The norm of the states is fixed, so their distance from zero would change by rounding only.
        return F.mse_loss(model(read(text)), torch.arange(8.0).expand(1, len(text), 8))

    subject = regard.look(model, read, loss=loss, names=list, inputs=["abc", "hello"])
    found = subject.attend("hello")
    assert found.layers["layer.self_attn"].key_labels == list("hello") and not model.training
    worth = subject.importance()
    with torch.no_grad():
        base = np.mean([float(loss(model, text)) for text in ("abc", "hello")])
        with regard.intervene(subject, "layer.self_attn", heads=[1]):
            off = np.mean([float(loss(model, text)) for text in ("abc", "hello")])
    assert worth.added["layer.self_attn"][1] == pytest.approx(off - base) and worth.measure == "loss"
    with pytest.raises(InputError, match="pass inputs=.* to look"):
        _ = regard.look(model, read).layers
    with pytest.raises(InputError, match="CustomModel is not a transformers model: pass look\\(\\) a function"):
        regard.look(model)


@pytest.mark.parametrize("name", ["llama", "gpt2", pytest.param("bart", marks=pytest.mark.slow), "bert-mlm", "t5"])
@torch.no_grad()
def test_transformers_loads_a_pruned_folder(
    folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import transformers

    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "cache"))
    subject = regard.look(folders(name), inputs=TEXTS)
    report = subject.prune(1, tmp_path / "less")
    removed, width = len(report.removed), 8
    assert removed == (2 if name == "llama" else 1)  # which share their keys
    assert report.parameters_before - report.parameters_after >= removed * width * 32 * 2
    given = dict(report.subject._example_arguments())
    expected = report.subject.model(**given)[0]
    with regard.intervene(subject, report.removed[0][0], heads=[head for _, head in report.removed]):
        torch.testing.assert_close(subject.model(**given)[0], expected, atol=1e-4, rtol=1e-4)
    again = regard.look(tmp_path / "less")
    assert torch.equal(again.model(**given)[0], expected)
    assert [layer.heads for layer in again.layers] == [layer.heads for layer in report.subject.layers]
    automatic = {
        "t5": "AutoModelForSeq2SeqLM",
        "bart": "AutoModelForSeq2SeqLM",
        "bert-mlm": "AutoModelForMaskedLM",
    }.get(name, "AutoModelForCausalLM")
    theirs = getattr(transformers, automatic).from_pretrained(tmp_path / "less", trust_remote_code=True)
    assert torch.equal(theirs.eval()(**given)[0], expected)
    with pytest.raises(InputError, match="exists already"):
        subject.prune(1, tmp_path / "less")


@torch.no_grad()
def test_equal_numbers_of_heads_need_no_code(folders: Callable[[str], Path], tmp_path: Path) -> None:
    import transformers

    subject = regard.look(folders("llama"), inputs=TEXTS)
    report = subject.prune(2, tmp_path / "less")
    assert not list((tmp_path / "less").glob("*.py"))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "less").eval()
    given = dict(subject._example_arguments())
    assert torch.equal(theirs(**given)[0], report.subject.model(**given)[0])
    assert theirs.config.num_attention_heads == 2 and theirs.config.num_key_value_heads == 1


@torch.no_grad()
def test_layers_of_t5_lose_different_heads(folders: Callable[[str], Path], tmp_path: Path) -> None:
    subject = regard.look(folders("t5"), inputs=["the cat sat ||| the dog ran then", "a big dog ||| she saw"])
    assert {name.rpartition(".")[2] for name in subject.removable} == {"SelfAttention", "EncDecAttention"}
    report = subject.prune(3, tmp_path / "less")
    given = dict(report.subject._example_arguments())
    with ExitStack() as stack:
        for layer, head in report.removed:
            stack.enter_context(regard.intervene(subject, layer, heads=[head]))
        torch.testing.assert_close(subject.model(**given)[0], report.subject.model(**given)[0], atol=1e-4, rtol=1e-4)
    again = regard.look(tmp_path / "less")
    expected = report.subject.attend("the cat sat", generate=6)
    assert again.attend("the cat sat", generate=6).prediction == expected.prediction  # with a cache
    assert len(report.removed) == 3 and torch.equal(again.model(**given)[0], report.subject.model(**given)[0])


def test_heads_that_cannot_be_removed_stay(model_of: Build, tokenizer: Any) -> None:
    subject = regard.look(model_of("bart"), tokenizer, inputs=["the cat ||| the dog"])
    with pytest.raises(InputError, match="cannot be removed"):
        subject.keep_heads("model.encoder.layers.9.self_attn", [0, 1, 2])


def test_unsafe_folders_are_refused(folders: Callable[[str], Path], tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    shutil.copytree(folders("llama"), strange)
    config = json.loads((strange / "config.json").read_text())
    (strange / "code.py").write_text("raise SystemExit('it ran')\n")
    new = {"architectures": ["New"], "model_type": "new", "auto_map": {"AutoConfig": "code.Config"}}
    (strange / "config.json").write_text(json.dumps(config | new))
    with pytest.raises(InputError, match="its own code: read the code, and then add --trust_code"):
        regard.look(strange)
    (strange / "config.json").write_text(json.dumps(config))
    (strange / "model.safetensors").rename(strange / "pytorch_model.bin")
    with pytest.raises(InputError, match="are pickled, which can run code"):
        regard.look(strange)
    (strange / "pytorch_model.bin").unlink()
    with pytest.raises(InputError, match="has no weights"):
        regard.look(strange)
    (strange / "config.json").unlink()
    with pytest.raises(InputError, match=r"has no config.json: give a folder written by save_pretrained"):
        regard.look(strange)


def test_invalid_models_tokenizers_and_inputs_are_refused(model_of: Build, tokenizer: Any) -> None:
    model: Any = model_of("llama")
    subject = regard.look(model, tokenizer)
    for wrong, said in (
        (lambda: regard.look(3), "expected a torch module, a folder or a Hub name, got '3'"),
        (
            lambda: regard.look(model, "nowhere"),
            "tokenizer 'nowhere' is not a tokenizer: pass a tokenizer from AutoTokenizer",
        ),
        (lambda: regard.look(model, tokenizer, inputs=3), "inputs 3 is of type int: give an iterable or str"),  # type: ignore[arg-type]
        (
            lambda: subject.compare_with(3, ["the cat"]),  # type: ignore[arg-type]
            "other 3 is of type int: give ExternalModel",
        ),
    ):
        with pytest.raises(InputError, match=said):
            wrong()


def test_folder_without_tokenizer_and_speech_model_are_refused(
    folders: Callable[[str], Path], tmp_path: Path, tokenizer: Any, command: Command
) -> None:
    for name in ("llama", "gpt2"):  # transformers fails on the first, and makes up an empty tokenizer for the second
        shutil.copytree(folders(name), tmp_path / name, ignore=shutil.ignore_patterns("tokenizer*"))
        status, _, error = command("look", tmp_path / name, "--text", "the cat", "--json", tmp_path / "a.json")
        assert (status, "has no tokenizer: save the model's tokenizer in the folder with" in error) == (2, True), error
        assert regard.look(tmp_path / name, tokenizer).attend("the cat").layers
    status, _, error = command("look", folders("wav2vec2"), "--text", "the cat", "--json", tmp_path / "a.json")
    assert (status, error.count("\n")) == (2, 1)
    assert "Wav2Vec2Model takes input_values, not texts or images: from Python, pass look()" in error
    heard = regard.look(folders("wav2vec2"), lambda sound: {"input_values": sound})
    assert heard.attend(torch.randn(1, 4000)).layers


def test_name_that_cannot_be_fetched_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("transformers", reason="names are fetched with the extra hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    begin = time.monotonic()
    with pytest.raises(
        InputError,
        match="'bert-base' is not a folder here, and the Hugging Face cache .* cannot be fetched: '.*refused",
    ):
        regard.look("bert-base", download=True)
    assert not caplog.records and time.monotonic() - begin < 10  # the download is not retried
    with pytest.raises(InputError, match="cannot be a name on the Hugging Face Hub"):
        regard.look("my model")


def test_hub_is_not_contacted_without_download(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    pytest.importorskip("transformers", reason="names are fetched with the extra hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with no_connections() as tried:
        with pytest.raises(InputError, match=r"the Hugging Face cache has no copy: check the name, or add --down"):
            regard.look("bert-base")
        status, out, error = command("look", "owner/bert-base", "--text", "a", "--json", "a.json")
        assert (status, out, error.count("\n")) == (2, "", 1) and "add --download" in error
    assert not tried


@contextmanager
def no_connections() -> Iterator[list[Any]]:
    """Make every connection inside the block fail; yields the list of addresses."""
    tried: list[Any] = []

    def refuse(_: socket.socket, address: Any) -> None:
        tried.append(address)
        raise OSError("no connections in this test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", lambda *given, **_: refuse(cast(Any, None), given))
        yield tried


def test_invalid_inputs_are_refused(model_of: Build, tokenizer: Any) -> None:
    translates = regard.look(model_of("bart"), tokenizer)
    for given in (" ||| A dog", "||| A dog", ("", "A dog")):
        with pytest.raises(InputError, match=r"target 'A dog' has no source: type source \|\|\| target"):
            translates.attend(given)
    for given in ("the cat ||| ", "the cat |||", ("the cat", "")):
        with pytest.raises(InputError, match="target is empty: type a target, or leave it out"):
            translates.attend(given)
    with pytest.raises(InputError, match="target is empty: type a target, or leave it out"):
        translates.attend("the cat", target="")
    subject = regard.look(model_of("llama"), tokenizer)
    refused = {"the cat ||| the dog": "accepts none", "": "input is empty", "cat " * 90: "90 tokens, more than the"}
    for given, message in refused.items():
        with pytest.raises(InputError, match=message):
            subject.attend(given)
    with pytest.raises(InputError, match="an encoder without an output layer, which generates no text: leave out"):
        regard.look(model_of("bert"), tokenizer).attend("the cat", generate=3)
    with pytest.raises(InputError, match="has no inputs"):
        subject.importance()
    with pytest.raises(InputError, match="reads texts: pass its tokenizer to look\\(\\)"):
        regard.look(model_of("llama"))
    with pytest.raises(InputError, match="CLIPModel takes a text and an image at once: from Python, pass look"):
        regard.look(model_of("clip"), tokenizer)
    with pytest.raises(InputError, match="ViTModel failed on this input: .*50"):
        regard.look(model_of("vit")).attend(torch.zeros(1, 3, 50, 50))
    for count in ("x", -1, 10**7):
        with pytest.raises(InputError, match="generate"):
            regard.look(model_of("llama"), tokenizer, generate=count)  # type: ignore[arg-type]


def test_explorer_works_as_for_runs(model_of: Build, tokenizer: Any) -> None:
    from starlette.testclient import TestClient

    from regard.server.app import make_app
    from regard.server.explorer import Explorer

    subject = regard.look(model_of("llama"), tokenizer)
    with TestClient(make_app(Explorer(subject)), base_url="http://localhost") as client:
        about = client.get("/api/run").json()
        assert about["step"] is None and about["kind"] == "LlamaForCausalLM" and not about["draws"]
        off = {"layer": "model.layers.1.self_attn", "heads": [0]}
        found = client.post("/api/attend", json={"input": TEXTS[0], "interventions": [off]}).json()
        weights = found["map"]["layers"][1]["weights"], found["original"]["layers"][1]["weights"]
        assert not np.any(weights[0][0]) and np.any(weights[1][0])
        assert found["original"]["prediction"] == subject.attend(TEXTS[0]).prediction
        worth = client.get("/api/importance").json()
        assert worth == importance_by_layer(subject.importance([TEXTS[0]]))
        unknown = {"input": "the cat", "interventions": [{"layer": "model.layers.9.self_attn"}]}
        assert "is unknown" in client.post("/api/attend", json=unknown).json()["error"]
        assert client.post("/api/attend", json={"input": ""}).status_code == 422


def test_look_without_a_browser(folders: Callable[[str], Path], tmp_path: Path, command: Command) -> None:
    json_file, page = tmp_path / "weights.json", tmp_path / "page.html"
    status, printed, _ = command(
        *("look", folders("llama"), "--text", TEXTS[0], "--generate", "3", "--layers", "1", "--heads", "2,0"),
        *("--json", json_file, "--plot", page),
    )
    kept = json.loads(json_file.read_text())
    assert status == 0 and page.read_text().startswith("<!doctype html>") and "heads 2, 0:" in printed
    [layer] = kept["layers"]
    expected = regard.look(folders("llama")).attend(TEXTS[0], generate=3).layers["model.layers.1.self_attn"]
    np.testing.assert_allclose(layer["weights"], expected.weights[[2, 0]], atol=1e-6)
    named = ("--layers", "model.layers.1.self_attn, model.layers.0.self_attn")
    assert command("look", folders("llama"), "--text", TEXTS[0], *named, "--json", json_file)[0] == 0
    names = [layer["name"] for layer in json.loads(json_file.read_text())["layers"]]
    assert names == ["model.layers.1.self_attn", "model.layers.0.self_attn"]
    drawn = ("--text", "a", "--plot", page)
    for words, said in {
        ("--plot", page): "--plot needs an input: give --text or --image",
        (*drawn, "--heads", "7"): "head of model.layers.0.self_attn 7 is out of range",
        (*drawn, "--layers", "x"): "choose model.layers.0.self_attn, model.layers.1.self_attn or 0 to 1",
        (*drawn, "--layers", "model.layers.1.self_atn"): "did you mean model.layers.1.self_attn?",
        (*drawn, "--target", ""): "target is empty: type a target, or leave it out",
        (*drawn, "--generate", "-1"): "generate -1 is out of range",
        ("--text", "a", "--plot", "x.txt"): "has no known extension",
        ("--target", "a"): "--target needs a source",
    }.items():
        status, _, error = command("look", folders("llama"), *words)
        assert (status, said in error) == (2, True), error
