"""A campaign of damaged models from other programs: commands read folders with damaged files.

    python -m tests.faults decoders --seed 7 --count 500     number of damaged folders of one kind
    python -m tests.faults decoders --seed 7 --only 123      repeat one trial

Each command runs in a forked process, which inherits the imported libraries. A correct command ends with status
0, 1 or 2. If the status is not 0, standard error has one line, which does not report an internal error.
"""

import contextlib
import importlib
import io
import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch

from tests.faults.children import Ended, run
from tests.faults.damage import WAYS, Way
from tests.faults.report import Report, Trial, campaign
from tests.language_models import word_tokenizer

USUAL_COUNT = 500
PATIENCE = 60.0
"""Seconds until a command is considered hung."""
PROGRESS = re.compile(r"[A-Z][\w ]+: \d+ of \d+ done$|Writing ")
TEXT = "the cat sat on the mat"
LATE = ("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto", "torch._dynamo")
EDITS: list[tuple[str, Any]] = [
    ("model_type", "llama9"),
    ("architectures", ["Gpt9ForCausalLM"]),
    ("architectures", ["GPT2Tokenizer"]),
    ("architectures", "GPT2LMHeadModel"),
    ("transformers_version", "99.0.0"),
    ("version", "9.0"),
    ("vocab_size", 3),
    ("vocab_size", -5),
    ("hidden_size", 2**40),
    ("n_embd", -8),
    ("n_head", 3),
    ("n_head", 0),
    ("num_attention_heads", 0),
    ("max_position_embeddings", "many"),
    ("n_positions", 2),
    ("activation_function", "newest"),
    ("hidden_act", 7),
    ("dtype", "float9"),
    ("quantization_config", {"quant_method": "newest"}),
    ("quantization_config", {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    ("attn_implementation", "flash_attention_9"),
    ("_attn_implementation", "newest"),
    ("auto_map", {"AutoConfig": "code.Config", "AutoTokenizer": ["code.Tokenizer", None]}),
    ("auto_map", {"AutoTokenizer": ["code.Tokenizer", None]}),
    ("auto_map", "code.Config"),
    ("is_encoder_decoder", True),
    ("decoder_start_token_id", 10**6),
    ("pad_token_id", -1),
    ("eos_token_id", [1, 2, "x"]),
    ("max_length", -3),
    ("max_new_tokens", 0),
    ("do_sample", "often"),
    ("num_beams", 0),
    ("cache_implementation", "newest"),
    ("tokenizer_class", "NewestTokenizer"),
    ("tokenizer_class", "BertModel"),
    ("tokenizer_class", "T5Tokenizer"),
    ("model", {"type": "Newest", "vocab": {}}),
    ("model", {"type": "BPE", "vocab": {"a": 0, "b": 7}, "merges": [["a", "c"]]}),
    ("model", {"type": "WordLevel", "vocab": {"a": 2**40}, "unk_token": "?"}),
    ("normalizer", {"type": "Newest"}),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Removed", "invert": True}),
    ("post_processor", {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {"x": 1}}),
    ("added_tokens", [{"id": -1, "content": ""}]),
    ("added_tokens", [{"id": 10**9, "content": "the", "special": True}]),
    ("chat_template", "{% for"),
    ("image_size", [0, 0]),
    ("image_size", "large"),
    ("patch_size", 0),
    ("image_mean", ["x"]),
    ("image_std", [0, 0, 0]),
    ("size", {"height": -1}),
    ("num_channels", 0),
]
"""Values of a newer or damaged folder, which replace or extend those of a JSON file."""
CODE = [
    *("class Tokenizer: pass\nclass Config: pass\n", "raise RuntimeError('x')\n", "import nothing_like_it\n"),
    *("def (:\n", "Tokenizer = Config = 7\n"),
    "class Tokenizer:\n    @classmethod\n    def from_pretrained(cls, *a, **b): return cls()\n",
    "import sys\nsys.exit(3)\n",
]


class Kind(NamedTuple):
    """A kind of folder, the function that creates the folder, and the commands that read the folder."""

    needs: tuple[str, ...]
    make: Callable[[Path], None]
    commands: tuple[tuple[str, ...], ...]
    """`F` is the damaged folder, `G` an intact one."""


def edit(path: Path, random: Random, others: list[Path]) -> None:
    """Apply one of `EDITS` to a JSON file; flip a bit of other files."""
    jsons = [each for each in (path, *others) if each.suffix == ".json"]
    if not jsons:
        return random.choice(WAYS)(path, random, others)
    path = random.choice(jsons)
    value = json.loads(path.read_bytes())
    if isinstance(value, dict):
        known = [each for each in EDITS if each[0] in value] or EDITS
        name, new = random.choice(random.choice([known, known, EDITS]))
        value[name] = new
        if name == "auto_map":
            (path.parent / "code.py").write_text(random.choice(CODE))
    path.write_text(json.dumps(value))
    return None


def unfinite(path: Path, random: Random, others: list[Path]) -> None:
    """Overwrite some numbers of a tensor file."""
    tensors = [each for each in (path, *others) if each.suffix == ".safetensors"]
    if not tensors:
        return random.choice(WAYS)(path, random, others)
    from safetensors.torch import load_file, save_file

    state = load_file(tensors[0])
    tensor = random.choice([each for each in state.values() if each.is_floating_point() and each.numel()])
    values = [float("nan"), float("inf"), float("-inf"), 1e30, -1e38]
    tensor.flatten()[random.randrange(tensor.numel()) :: random.choice([1, 10, 10**6])] = random.choice(values)
    save_file(state, tensors[0], metadata={"format": "pt"})
    return None


KINDS_OF_DAMAGE: list[Way] = [*WAYS, *[edit] * 14, *[unfinite] * 3]


def _tokenizer(folder: Path) -> None:
    words = f"[PAD] [UNK] [CLS] [SEP] [MASK] {TEXT} a dog".split()
    special = {"pad_token": "[PAD]", "mask_token": "[MASK]", "eos_token": "[SEP]"}
    word_tokenizer(words, "[UNK]", **special).save_pretrained(folder)


def _save(folder: Path, model: str, config: str, **sizes: Any) -> None:
    import transformers

    getattr(transformers, model)(getattr(transformers, config)(**sizes)).save_pretrained(folder)


def _decoder(folder: Path) -> None:
    sizes: dict[str, Any] = {"vocab_size": 16, "n_positions": 32, "n_embd": 8, "n_layer": 2, "n_head": 2}
    _save(folder, "GPT2LMHeadModel", "GPT2Config", bos_token_id=3, eos_token_id=3, **sizes)
    _tokenizer(folder)


SIZES: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}


def _encoder(folder: Path) -> None:
    _save(folder, "BertForMaskedLM", "BertConfig", vocab_size=16, **SIZES)
    _tokenizer(folder)


def _vision(folder: Path) -> None:
    from PIL import Image

    _save(folder, "ViTForImageClassification", "ViTConfig", image_size=16, patch_size=8, **SIZES)
    prepared = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": {"height": 16, "width": 16}}
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared))
    Image.new("RGB", (20, 20), (10, 200, 30)).save(folder.parent / "picture.png")


def _marian(folder: Path) -> None:
    from tests.marian import write_marian

    write_marian(folder)


def _trained(folder: Path) -> None:
    import regard
    from tests.faults.files import TRAININGS
    from tests.german import write

    (folder.parent / "text").mkdir()
    text = write(folder.parent / "text")
    flags: dict[str, Any] = {**TRAININGS["translation"], **text, "positions": "sinusoidal"}
    regard.train("translation", savepath=folder.parent / "models", steps=8, progress=False, **flags)


def _engine(folder: Path) -> None:
    from regard.cli import main

    _trained(folder)
    assert main(list(ENGINE)) == 0
    found = next((folder.parent / "models/translation/engines").iterdir())
    (folder.parent / "engine").write_text(found.name)
    found.rename(folder)


ENGINE = ("translate", "translation", "Heute läuft der kleine Hund.", "--engine", "ctranslate2")


LOOKS = (
    ("look", "F", "--text", TEXT, "--json", "out.json"),
    ("look", "F", "--text", TEXT, "--json", "out.json", "--trust_code"),
    ("look", "F", "--text", "a" * 45 + "b!", "--plot", "out.html"),
    ("look", "F", "--text", TEXT, "--plot", "out.png", "--generate", "3"),
    ("compare", "G", "F", "--examples", "texts.txt"),
)
KINDS: dict[str, Kind] = {
    "decoders": Kind(("transformers",), _decoder, LOOKS),
    "encoders": Kind(("transformers",), _encoder, LOOKS),
    "translators": Kind(
        ("transformers", "sentencepiece"),
        _marian,
        (
            ("look", "F", "--text", "ein Hund rennt", "--json", "out.json"),
            ("look", "F", "--text", "ein Hund", "--target", "a dog", "--plot", "out.html"),
            ("import", "F", "--examples", "texts.txt"),
        ),
    ),
    "vision": Kind(
        ("transformers",),
        _vision,
        (
            ("look", "F", "--image", "picture.png", "--json", "out.json"),
            ("look", "F", "--image", "picture.png", "--plot", "out.html"),
        ),
    ),
    "ctranslate2": Kind(("ctranslate2",), _engine, (ENGINE,)),
}


def work(argv: tuple[str, ...], told: int) -> int:
    """Run one command in the child."""
    from regard.cli import main

    del told
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return main(list(argv))


def faults_of(ended: Ended) -> list[str]:
    """Return the faults in the outcome of a command."""
    found = ["hangs"] if ended.hung or ended.stopped else []
    every = [line for line in ended.err.splitlines() if not PROGRESS.match(line)]
    lines = [line for line in every if line.startswith("regard: ")]
    if ended.status not in (0, 1, 2) and not found:
        found.append(f"status {ended.status}")
    if "Traceback" in ended.err or "panicked" in ended.err:
        found.append(f"traceback: {ended.err[-300:]}")
    if "internal error" in ended.err:
        found.append(lines[-1].partition("; its traceback")[0])
    if ended.status and (len(lines) != 1 or len(every) != 1):
        found.append(f"not one line: {ended.err[-300:]}")
    return found


def trial(name: str, root: Path, seed: int, index: int) -> tuple[Trial, str]:
    """Damage one folder, and check the outcome of a command."""
    random = Random(f"{seed}/{index}")
    kind, site = KINDS[name], laid_out(name, root)
    folder = (site / "F").resolve()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path, way = random.choice(files), random.choice(KINDS_OF_DAMAGE)
    argv = tuple({"F": "F", "G": str(root / "ground" / "F")}.get(word, word) for word in random.choice(kind.commands))
    try:
        way(path, random, [each for each in files if each != path])
    except (ValueError, OSError, UnicodeError):  # the file has no such value
        path.write_bytes(random.randbytes(50))
    ended = run(partial(work, argv), site, patience=PATIENCE)
    what = (f"{argv[0]}: {way.__name__} {path.name}", *argv[1:], ended.err[-400:])
    outcome = {0: "unharmed", 1: "the machine refused", 2: "refused"}.get(ended.status, "other")
    return Trial(index, argv[0], outcome, tuple(faults_of(ended)), what), ended.err


@contextlib.contextmanager
def made(name: str) -> Iterator[Path]:
    """Create an intact folder of a kind in a separate process, and import its readers."""
    for module in ("regard", "regard.cli.look", "regard.cli.convert", *KINDS[name].needs, *LATE):
        if find_spec(module.partition(".")[0]) is not None:
            importlib.import_module(module)
    with tempfile.TemporaryDirectory() as root:
        ground = Path(root) / "ground"
        ground.mkdir()
        (ground / "texts.txt").write_text(f"{TEXT}\nthe cat sat on a dog\n")

        def make(told: int) -> int:
            del told
            os.chdir(ground)
            KINDS[name].make(ground / "F")
            return 0

        ended = run(make, ground, patience=300)
        assert ended.status == 0, ended
        warm_up(name, Path(root))
        yield Path(root)


def warm_up(name: str, root: Path) -> None:
    """Run each command on the intact folder, so that children need not import its modules."""
    site, here = laid_out(name, root), Path.cwd()
    os.chdir(site)
    try:
        for argv in KINDS[name].commands:
            words = tuple({"G": str(root / "ground" / "F")}.get(word, word) for word in argv)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
                status = work(words, 0)
            assert status in (0, 2), err.getvalue()
    finally:
        os.chdir(here)


def laid_out(name: str, root: Path) -> Path:
    """Return a copy of the site, in which one folder will be damaged."""
    site = root / "site"
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(root / "ground", site, symlinks=False)
    if name == "ctranslate2":
        engines = site / "models" / "translation" / "engines"
        (site / "F").rename(engines / (site / "engine").read_text())
        (site / "F").symlink_to(engines / (site / "engine").read_text())
    return site


def main(name: str, count: int | None, seed: int, only: int | None = None) -> Report:
    """Run `count` trials with damaged folders of a kind."""
    if any(find_spec(each) is None for each in KINDS[name].needs):
        return Report(f"damaged folders, {name} (not installed)", seed, [], "")
    with made(name) as root:
        tried = partial(trial, name, root, seed)
        return campaign(f"damaged folders, {name}", name, seed, count or USUAL_COUNT, only, tried)


CAMPAIGNS: dict[str, Callable[..., Report]] = {name: partial(main, name) for name in KINDS}
