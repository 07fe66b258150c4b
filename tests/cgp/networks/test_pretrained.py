"""Converted models on disk."""

from __future__ import annotations

import json
import os

import pytest
import torch
from torch import nn

from cgp import calibrate, from_pretrained, save_pretrained
from cgp.networks.convert import convert
from cgp.networks.model.fingerprints import logit_temperature, set_logit_temperature
from tests.cgp.helpers import moved
from tests.cgp.networks.convert import hosts
from tests.cgp.networks.convert.hosts import HOSTS, Host


def converted(host: Host, layers="all") -> nn.Module:
    """With every parameter moved, so that nothing is found again by chance."""
    return moved(convert(host.model, "sparse_cgp", layers, num_inducing=3, inputs=host.inputs), 0.01)


def assert_equal(host: Host, again: nn.Module, model: nn.Module) -> None:
    state, other = model.state_dict(), again.state_dict()
    assert state.keys() == other.keys()
    assert all(torch.equal(state[name], other[name]) for name in state)
    assert torch.equal(host.run(again), host.run(model.eval()))
    assert not again.training


@pytest.mark.parametrize("make", HOSTS)
def test_reloading_is_equal_to_the_bit(make, tmp_path):
    host, other = make(), make().model
    model, before = converted(host), {name: value.clone() for name, value in other.state_dict().items()}
    save_pretrained(model, tmp_path / "model")
    assert_equal(host, from_pretrained(tmp_path / "model", other), model)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


@pytest.mark.parametrize(
    "make", [hosts.transformers_bert, hosts.transformers_vit, hosts.llama, hosts.bart, hosts.t5, hosts.gpt2]
)
@pytest.mark.parametrize("by_transformers", [True, False])
def test_models_of_transformers_come_back_without_the_host(make, by_transformers, tmp_path):
    """Saved by this package, or by a method of their own in pieces, as `push_to_hub` does."""
    host = make()
    model = converted(host, [0, -1])
    set_logit_temperature(model, 1.37)
    model.save_pretrained(tmp_path, max_shard_size="8KB") if by_transformers else save_pretrained(model, tmp_path)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == by_transformers
    assert_equal(host, again := from_pretrained(tmp_path), model)
    assert logit_temperature(again) == pytest.approx(1.37)
    plain = type(host.model).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(host.run(plain), host.run(model.eval()), atol=1e-5, rtol=0)


def test_checkpoints_of_the_trainer(tmp_path):
    transformers = pytest.importorskip("transformers")
    host = hosts.transformers_bert()
    model = convert(host.model)
    amplitude = model.bert.encoder.layer[-1].attention.self.gp.log_amplitude
    before = amplitude.detach().clone()
    rows = [{"input_ids": row, "labels": torch.tensor(1)} for row in host.inputs["input_ids"]]
    options = transformers.TrainingArguments(
        str(tmp_path), max_steps=2, save_steps=2, report_to=[], use_cpu=True, disable_tqdm=True
    )
    transformers.Trainer(model, options, train_dataset=rows).train()
    assert_equal(host, from_pretrained(tmp_path / "checkpoint-2"), model)
    assert not torch.equal(amplitude, before)


def test_models_of_timm_come_back_without_the_host(tmp_path):
    timm = pytest.importorskip("timm")
    model = convert(timm.create_model("vit_tiny_patch16_224", num_classes=3).eval())
    save_pretrained(model, tmp_path)
    again, x = from_pretrained(tmp_path), torch.randn(1, 3, 224, 224)
    assert torch.equal(again(x), model(x))


@pytest.mark.parametrize("options", [{"img_size": 32, "patch_size": 16}, {"num_heads": 1}, {"act_layer": "relu"}])
def test_models_of_timm_with_options_of_their_own_ask_for_a_network(options, tmp_path):
    """A name would build another: of other shapes, or of the same ones and other answers."""
    timm = pytest.importorskip("timm")
    host = timm.create_model("vit_tiny_patch16_224", num_classes=3, **options).eval()
    save_pretrained(model := convert(host), tmp_path)
    with pytest.raises(ValueError, match=r"the architecture that was saved \(VisionTransformer\), .* got None: pass"):
        from_pretrained(tmp_path)
    size = options.get("img_size", 224)
    assert torch.equal(from_pretrained(tmp_path, host)(x := torch.ones(1, 3, size, size)), model(x))


def test_saving_over_an_older_model_leaves_one_of_them(tmp_path, monkeypatch):
    """The new one, or after a write that failed the older one."""
    host = hosts.timm_vit()
    save_pretrained(convert(host.model), tmp_path)
    save_pretrained(converted(host), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == ["cgp_config.json", "model.safetensors"]
    assert from_pretrained(tmp_path, host.model).blocks[0].attn.gp.inducing.shape == (2, 3, 8)

    def fail(model, name):
        raise OSError("disk full")

    monkeypatch.setattr("cgp.networks.pretrained.save_weights", fail)
    with pytest.raises(OSError, match="disk full"):
        save_pretrained(convert(host.model), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_one_flipped_bit_is_refused(tmp_path):
    host, weights = hosts.timm_vit(), tmp_path / "model.safetensors"
    save_pretrained(convert(host.model), tmp_path)
    content = bytearray(weights.read_bytes())
    content[-1000] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors: expected weights, got a damaged file"):
        from_pretrained(tmp_path, host.model)


def test_what_cannot_be_saved_or_loaded(tmp_path):
    host = hosts.timm_vit()
    with pytest.raises(ValueError, match=r"model: expected one that cgp.convert, .*torch.save\(model.state_dict\(\)"):
        save_pretrained(host.model, tmp_path)
    with pytest.raises(ValueError, match="folder: expected safetensors of a converted model"):
        from_pretrained(tmp_path, host.model)
    with pytest.raises(FileNotFoundError, match="folder: expected one that cgp.save_pretrained wrote, got .*nowhere"):
        from_pretrained(tmp_path / "nowhere", host.model)
    with pytest.raises(TypeError, match=r"cgp.from_pretrained\(folder, model\), got"):
        from_pretrained(host.model, tmp_path)
    save_pretrained(convert(host.model), tmp_path)
    with pytest.raises(ValueError, match="model: expected the architecture that was saved, where attention layer 2 is"):
        from_pretrained(tmp_path, hosts.torch_attention().model)
    with pytest.raises(ValueError, match="model: expected the architecture that was saved"):
        from_pretrained(tmp_path)
    config = tmp_path / "cgp_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"format_version": 1}))
    with pytest.raises(ValueError, match="expected format_version 3, got 1"):
        from_pretrained(tmp_path, host.model)


class Harmful:
    """What a pickle runs when it is read."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize(
    "forged",
    [
        {"checkpoint_path": "weights.pth"},
        {"pretrained": True},
        {"pretrained_cfg": {"file": "weights.pth"}, "pretrained": True},
        {"model_name": "local-dir:/tmp"},
        {"model_name": "hf-hub:sender/vit_tiny_patch16_224"},
        {"num_classes": "3"},
    ],
)
def test_a_folder_names_a_model_of_timm_and_nothing_else(forged, tmp_path):
    timm = pytest.importorskip("timm")
    save_pretrained(convert(timm.create_model("vit_tiny_patch16_224", num_classes=3).eval()), tmp_path)
    torch.save(Harmful(tmp_path / "harm"), tmp_path / "weights.pth")
    file = tmp_path / "cgp_config.json"
    config = json.loads(file.read_text())
    forged = {name: str(tmp_path / value) if value == "weights.pth" else value for name, value in forged.items()}
    file.write_text(json.dumps(config | {"timm": config["timm"] | forged}))
    with pytest.raises(ValueError, match=r"cgp_config\.json: expected"):
        from_pretrained(tmp_path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        ({"architectures": ["AutoModel"]}, "got AutoModel, which is no model of transformers: pass"),
        ({"architectures": ["set_seed"]}, "got set_seed, which is no model"),
        ({"attn_implementation": "sender/kernel"}, "expected attn_implementation to name no file"),
        ({"text_config": {"_attn_implementation": "sender/kernel:run"}}, "to name no file and nothing to download"),
        ({"experts_implementation": "sender/kernel"}, "expected experts_implementation to name no file"),
        ({"architectures": ["TimmWrapperModel"], "model_args": {"checkpoint_path": "weights.pth"}}, "checkpoint_path"),
        ({"architectures": ["TimmWrapperModel"], "architecture": "local-dir:/tmp"}, "expected architecture to name no"),
    ],
)
def test_a_configuration_of_transformers_names_a_model_and_nothing_else(forged, message, tmp_path):
    save_pretrained(convert(hosts.transformers_bert().model), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | forged))
    with pytest.raises(ValueError, match=message):
        from_pretrained(tmp_path)


def test_adapters_and_pickles_in_a_folder_are_not_followed(tmp_path):
    save_pretrained(convert(hosts.transformers_bert().model), tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "sender/model"}')
    with pytest.raises(ValueError, match=r"expected a whole model, got adapter_config\.json"):
        from_pretrained(tmp_path)
    (tmp_path / "adapter_config.json").unlink()
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    torch.save(Harmful(tmp_path / "harm"), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        from_pretrained(tmp_path)
    assert not (tmp_path / "harm").exists()


def test_another_host_is_refused_by_name(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    data = [(torch.randn(40, 4), torch.arange(40) % 3)]
    save_pretrained(calibrate(model, data, method="temperature").model, tmp_path)
    shapes = "0.bias (9,) in place of (8,), 0.weight (9, 4) in place of (8, 4), 2.weight (3, 9) in place of (3, 8)"
    for other, got in (
        (nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 3)), f"another Sequential with {shapes}"),
        (nn.Sequential(nn.Linear(4, 8)), "another Sequential without 2.bias, 2.weight"),
        (nn.Sequential(*model, nn.Linear(3, 3)), "another Sequential with 3.bias, 3.weight"),
        (nn.Linear(4, 3), "a Linear without 0.bias, 0.weight, 2.bias and 1 more"),
    ):
        with pytest.raises(ValueError, match="model: expected the architecture that was saved") as raised:
            from_pretrained(tmp_path, other)
        assert str(raised.value).endswith(f"saved (Sequential), with tensors of its names and shapes, got {got}")
        assert raised.value.__suppress_context__  # torch's own message has hundreds of names
