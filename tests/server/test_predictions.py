"""Next tokens, logit lens, attribution and value norms over HTTP equal those of the Python functions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import regard
from tests.external.conftest import model_of, small, tokenizer  # noqa: F401
from tests.server.test_app import INPUT, Client, Explorer, make_app

pytestmark = pytest.mark.filterwarnings("ignore")
TEXT = "the cat sat on the"


@pytest.fixture(scope="module")
def subject(model_of: Callable[[str], Any], tokenizer: Any) -> regard.ExternalModel:  # noqa: F811
    return regard.look(model_of("gpt2"), tokenizer)


@pytest.fixture
def language(subject: regard.ExternalModel) -> Client:
    return Client(make_app(Explorer(subject)))


def test_tokens_of_a_changed_model(language: Client, subject: Any) -> None:
    change = {"layer": subject.layers[0].name, "heads": [1]}
    body = {"input": TEXT, "count": 3, "temperature": 0.5, "top_k": 7, "draw": 4, "interventions": [change]}
    answer = language.post("/api/next_tokens", body).json()
    with regard.intervene(subject, change["layer"], heads=[1]):
        expected = regard.next_tokens(subject, TEXT, count=3, temperature=0.5, top_k=7, seed=4).json()
    assert answer == {**expected, "interventions": list(expected["interventions"])}
    assert answer["kept"] == 7 and answer["tokens"][0]["original"] is not None
    about = language.request("GET", "/api/run").json()
    assert (about["predicts"], about["mask"]) == ("next", "<mask>")


def test_lens_and_attribution(language: Client, subject: regard.ExternalModel) -> None:
    assert language.post("/api/logit_lens", {"input": TEXT}).json() == regard.logit_lens(subject, TEXT).json()
    answer = language.post("/api/logit_attribution", {"input": TEXT, "token": 7, "position": 2}).json()
    expected = regard.logit_attribution(subject, TEXT, token=7, position=2)
    assert answer["heads"] == expected.heads and answer["logit"] == pytest.approx(expected.total, abs=1e-4)


def test_value_norms(language: Client, subject: regard.ExternalModel) -> None:
    answer = language.post("/api/value_norms", {"input": TEXT}).json()
    for name, norms in regard.weighted_values(subject, TEXT).norms.items():
        assert np.allclose(answer["norms"][name], norms, atol=1e-5)
    assert answer["left_out"] == {}


def test_errors_are_one_line(language: Client, trained: regard.AnswerRun) -> None:
    client = Client(make_app(Explorer(trained)))
    assert client.request("GET", "/api/run").json()["predicts"] is None
    refused = client.post("/api/next_tokens", {"input": INPUT})
    assert refused.status_code == 422 and "not a causal or masked language model" in refused.json()["error"]
    wrong = language.post("/api/next_tokens", {"input": TEXT, "top_p": 0})
    assert wrong.status_code == 422 and "give a number above 0, up to 1" in wrong.json()["error"]
