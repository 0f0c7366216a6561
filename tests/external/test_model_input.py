"""Images as inputs: reading, patches, and the explorer."""

import base64
import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.cli import main
from regard.errors import InputError
from regard.external import model_input
from regard.external.layer_maps import find_patches, label_patches
from regard.external.model_input import MAX_IMAGES, ImageStore
from regard.viz.heatmaps import LARGEST, blend
from regard.viz.maps import patch_weights

pytestmark = pytest.mark.filterwarnings("ignore")
Build = Callable[[str], Any]


def picture(format: str = "PNG", size: tuple[int, int] = (40, 30)) -> bytes:
    """Return an image file, red on the left and blue on the right."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[:, : size[0] // 2, 0] = pixels[:, size[0] // 2 :, 2] = 255
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=format)
    return file.getvalue()


@pytest.fixture
def subject(model_of: Build) -> Any:
    return regard.look(model_of("vit-classes"))


def test_patches_are_found_from_the_number_of_steps() -> None:
    config = SimpleNamespace(image_size=[32, 48], patch_size=16)
    assert find_patches(config, 7) == (1, 2, 3)
    assert label_patches(config, 7) == ["[CLS]", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2"]
    assert find_patches(config, 6) == (0, 2, 3)
    assert find_patches(config, 5) is None and find_patches(config, 100) is None  # of a window; of something larger
    config.num_detection_tokens = 2  # which follow the patches
    assert find_patches(config, 9) == (1, 2, 3)
    assert label_patches(config, 9)[-3:] == ["1,2", "[7]", "[8]"]  # type: ignore[index]
    assert find_patches(SimpleNamespace(image_size=32), 5) is None


def test_map_has_the_pixels_of_the_model(subject: Any, tmp_path: Path) -> None:
    (tmp_path / "two.png").write_bytes(picture())
    found = subject.attend(tmp_path / "two.png")
    side = subject.model.config.image_size
    assert found.input == "two.png" and found.pixels.shape == (side, side, 3)
    assert found.pixels[0, 0].tolist() == [255, 0, 0] and found.pixels[-1, -1].tolist() == [0, 0, 255]
    for layer in found.layers.values():
        first, rows, columns = layer.patches
        assert first + rows * columns == layer.weights.shape[2] == len(layer.key_labels)
        expected = layer.weights[:, 0, first:].reshape(-1, rows, columns)
        assert np.array_equal(patch_weights(layer), expected)
    data = found.json()
    assert data["picture"].startswith("data:image/png;base64,") and data["layers"][0]["patches"][0] == 1
    shown = Image.open(io.BytesIO(base64.b64decode(data["picture"].partition(",")[2])))
    assert np.array_equal(np.asarray(shown), found.pixels)
    for name in ("vit.png", "vit.svg", "vit.html"):
        assert found.save(tmp_path / name).stat().st_size > 1000


def test_overlay_is_brightest_at_the_largest_weight() -> None:
    pixels = np.full((4, 6, 3), 100, np.uint8)
    found = blend(pixels, np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    assert found[:2, 4:, 0].min() > 0.8 * LARGEST[0] and (found[:2, 4:, 2] < 20).all()
    assert (found[2:] == 99).all() or (found[2:] == 100).all()  # gray, as before
    assert (found[:2, :4] == found[2, 0]).all()


def test_uploaded_images_are_inputs_by_name(subject: Any, tmp_path: Path) -> None:
    (tmp_path / "here.png").write_bytes(picture())
    subject.add_image("dog.png", picture())
    assert subject.check("dog.png") is None
    assert np.array_equal(subject.attend("dog.png").pixels, subject.attend(tmp_path / "here.png").pixels)
    with pytest.raises(InputError, match=r"image '.*here\.png' was not uploaded: choose a file, PNG or JPEG"):
        subject.check(str(tmp_path / "here.png"))  # requests cannot read files by name
    listed = subject.over([tmp_path / "here.png", torch.zeros(1, 3, 8, 8), torch.ones(1, 3, 8, 8)])
    assert [listed.draw(seed=seed) for seed in range(3)] == ["here.png", "Tensor 1", "Tensor 2"]
    listed.check("here.png")


@pytest.mark.parametrize("content", [b"", b"nothing", picture("GIF"), picture("JPEG")[:200]])
def test_content_that_is_no_image_is_refused(subject: Any, content: bytes) -> None:
    with pytest.raises(InputError, match="image 'a' cannot be read: choose a PNG or JPEG file"):
        subject.add_image("a", content)


def test_large_images_are_refused_before_they_are_read(subject: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_input, "MAX_PIXELS", 1000)
    with pytest.raises(InputError, match="image 'a' has 1,200 pixels: give one of at most 1,000"):
        subject.add_image("a", picture())


def test_values_that_are_no_image_are_refused(subject: Any, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("no picture")
    for given, said in (
        (np.zeros((20, 20, 3), np.uint8), "image is of type ndarray: give a file, or a tensor"),
        (3, "image is of type int: give a file"),
        (torch.zeros(3, 16, 16), r"image has shape \(3, 16, 16\): give \(1, 3, "),
        (tmp_path / "words.txt", "words.txt' cannot be read: give a file such as .png or .jpg"),
    ):
        with pytest.raises(InputError, match=said):
            subject.attend(given)


def test_oldest_image_is_dropped_first() -> None:
    album = ImageStore()
    for number in range(MAX_IMAGES + 1):
        album.put(str(number), np.zeros((1, 1, 3), np.uint8))
    assert "0" not in album and "1" in album and str(MAX_IMAGES) in album


def test_explorer_accepts_an_image(subject: Any) -> None:
    app = pytest.importorskip("regard.server.app")
    from tests.server.test_app import Client

    client = Client(app.make_app(app.Explorer(subject)))
    assert client.request("GET", "/api/run").json()["pictures"] is True
    content = base64.b64encode(picture("JPEG")).decode()
    found = client.post("/api/picture", {"name": "dog.jpg", "content": content})
    assert (found.status_code, found.json()) == (200, {"input": "dog.jpg"})
    assert client.post("/api/attend", {"input": "dog.jpg"}).json()["map"]["picture"].startswith("data:image/png")
    for body, said in [
        ({"name": "a", "content": "*"}, "content '*' does not fit: give the file in base64"),
        ({"name": "a", "content": ""}, "image 'a' cannot be read: choose a PNG or JPEG file"),
        ({"name": "", "content": ""}, "name '' does not fit: give a name of 1 to 200 characters"),
    ]:
        refused = client.post("/api/picture", body)
        assert (refused.status_code, refused.json()["error"]) == (422, said)
    large = client.post("/api/picture", {"name": "a", "content": "A" * app.MAX_PICTURE})
    assert large.status_code == 413 and "12,582,912 bytes" in large.json()["error"]


def test_text_model_accepts_no_image(model_of: Build, tokenizer: Any) -> None:
    with pytest.raises(InputError, match="does not accept images: type a text"):
        regard.look(model_of("bert"), tokenizer).add_image("a", picture())


def test_on_the_command_line(
    folders: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two.png").write_bytes(picture())
    main(["look", str(folders("vit-classes")), "--image", str(tmp_path / "two.png"), "--plot", str(tmp_path / "o.png")])
    said = capsys.readouterr().out
    assert "weights of [CLS]" in said and "Saved" in said
    assert Image.open(tmp_path / "o.png").width > 300


def test_inputs_of_a_function_are_found_again_by_the_label_of_their_map() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = torch.nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, states: torch.Tensor) -> Any:
            return self.attn(states, states, states)[0]

    torch.manual_seed(0)
    subject = regard.look(Model(), lambda scale: torch.linspace(0, scale, 24).reshape(1, 3, 8), inputs=[1.0, 9.0])
    second = subject.attend(seed=1)
    assert second.input == "float 1"
    weights = [found.layers["attn"].weights for found in (second, subject.attend(second.input))]
    assert np.array_equal(weights[0], weights[1])
