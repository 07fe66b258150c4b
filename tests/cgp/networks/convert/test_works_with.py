"""Converted models with common tools: adapters, quantised weights, exports, parallel training."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn

from cgp import CategoricalLikelihood, Objective, calibrate, convert, generate, pipeline, predict, save_pretrained
from cgp.networks.convert import attention_sites
from cgp.networks.model.blocks import attention_blocks
from cgp.networks.predict.predict import logit_temperature
from tests.cgp.networks.convert import hosts

LABELS = torch.tensor([0, 1, 2])


class LowRank(nn.Module):
    """What an adapter is: a map beside a frozen one."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def low_rank(model: nn.Module) -> nn.Module:
    torch.manual_seed(5)
    for layer in model.model.layers:
        layer.self_attn.q_proj = LowRank(layer.self_attn.q_proj)
    return model


def by_peft(model: nn.Module) -> nn.Module:
    import peft

    torch.manual_seed(5)
    config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return peft.get_peft_model(model, config).eval()


@pytest.mark.parametrize("adapt", [low_rank, by_peft])
@pytest.mark.parametrize("before", [True, False])
def test_adapters_reach_mean_and_covariance_before_and_after_conversion(before, adapt):
    host = hosts.llama()
    plain, expected = predict(convert(host.model), host.inputs, 2, seed=0), host.run(adapt(copy.deepcopy(host.model)))
    model = convert(adapt(host.model)) if before else adapt(convert(host.model))
    torch.testing.assert_close(host.run(model), expected, atol=1e-5, rtol=0)
    result = predict(model, host.inputs, 2, seed=0)
    (variance,), (other,) = result.token_variance.values(), plain.token_variance.values()
    assert not torch.allclose(variance, other)
    host.call(model.train()).square().sum().backward()
    trained = [name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()]
    assert any("layers.0.self_attn.q_proj" in name for name in trained)


class Saved(nn.Module):
    """What peft puts in the place of a module that is saved with an adapter."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.original_module, self.active_adapters, self.disable_adapters = module, ["default"], False
        self.modules_to_save = nn.ModuleDict({"default": copy.deepcopy(module)})


def by_stand_in(model: nn.Module) -> nn.Module:
    for module in list(model.modules()):
        if "gp" in module._modules:
            module.gp = Saved(module.gp)
    return model


def saving_heads(model: nn.Module) -> nn.Module:
    import peft

    torch.manual_seed(5)
    config = {"target_modules": ["query", "value"], "init_lora_weights": False, "modules_to_save": ["gp"]}
    return peft.get_peft_model(model, peft.LoraConfig(**config)).eval()


def amplitudes(model: nn.Module) -> list[float]:
    return [block.log_amplitude.exp().mean().item() for block in attention_blocks(model)]


@pytest.mark.parametrize("adapt", [by_stand_in, saving_heads])
def test_heads_that_are_saved_with_an_adapter_are_those_in_use(adapt):
    host = hosts.transformers_bert()
    model, plain = adapt(convert(host.model, amplitude=0.5)), convert(host.model, amplitude=0.5)
    assert len(attention_blocks(model)) == 1
    assert [site.state for site in attention_sites(model)] == ["softmax", "softmax", "converted"]
    if adapt is by_stand_in:
        result, expected = (predict(m, host.inputs, 2, seed=0) for m in (model, plain))
        assert torch.equal(result.probabilities, expected.probabilities)
    report = calibrate(model, [(host.inputs, LABELS)], num_samples=2)
    (wrapper,) = (module for module in model.modules() if {"original_module"} <= module._modules.keys())
    assert amplitudes(model) == pytest.approx([0.5 * report.factor])
    assert logit_temperature(model) == pytest.approx(report.temperature)
    assert wrapper.original_module.log_amplitude.exp().mean().item() == pytest.approx(0.5)
    model.peft_config = getattr(model, "peft_config", {})
    with pytest.raises(ValueError, match="write by model.save_pretrained, and read by peft"):
        save_pretrained(model, "unused")


def test_an_adapter_keeps_amplitude_and_temperature(tmp_path):
    import peft

    host = hosts.transformers_bert()
    base = copy.deepcopy(host.model)
    model = saving_heads(convert(host.model))
    calibrate(model, [(host.inputs, LABELS)], num_samples=2)
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(convert(base), tmp_path).eval()
    assert amplitudes(again) == amplitudes(model) != pytest.approx([0.1])
    assert logit_temperature(again) == logit_temperature(model)
    result, expected = (predict(m, host.inputs, 2, seed=0) for m in (again, model))
    assert torch.equal(result.probabilities, expected.probabilities)


@pytest.mark.parametrize("adapt", [by_peft, lambda model: setattr(model, "peft_config", {}) or model])
def test_an_adapter_that_would_leave_the_scales_out_is_refused(adapt):
    host = hosts.llama()
    model = adapt(convert(host.model))
    before = amplitudes(model)
    with pytest.raises(ValueError, match=r"an adapter that saves .* got one that leaves them out: .*modules_to_save"):
        calibrate(model, [(host.inputs, host.inputs["input_ids"])], num_samples=2)
    assert amplitudes(model) == before


class Int8(nn.Module):
    """A map whose weight is a buffer of integers and no parameter."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.scale, self.bias = base.weight.detach().abs().amax(1, keepdim=True) / 127, base.bias
        self.register_buffer("weight", (base.weight.detach() / self.scale).round().to(torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight * self.scale, self.bias)


def replace_maps(model: nn.Module, make: Callable[[nn.Linear], nn.Module]) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and name != "classifier":
                setattr(parent, name, make(child))


def by_hand(model: nn.Module) -> None:
    replace_maps(model, Int8)


def by_torchao(model: nn.Module) -> None:
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantize_(model, Int8WeightOnlyConfig())


def by_bitsandbytes(model: nn.Module) -> None:
    library = pytest.importorskip("bitsandbytes")

    def make(base: nn.Linear) -> nn.Module:
        new = library.nn.Linear8bitLt(base.in_features, base.out_features, has_fp16_weights=False)
        new.load_state_dict(base.state_dict())
        return new.to("cpu")  # quantises

    replace_maps(model, make)


@pytest.mark.filterwarnings("ignore")  # of these libraries themselves
@pytest.mark.parametrize("quantise", [by_hand, by_torchao, by_bitsandbytes])
@pytest.mark.parametrize("make", [hosts.transformers_bert, hosts.timm_vit])
def test_hosts_with_int8_weights(make, quantise):
    host = make()
    before = host.run()
    quantise(host.model)
    expected = host.run()
    assert not torch.equal(expected, before)
    model = convert(host.model, "sparse_cgp", "all", num_inducing=4, inputs=host.inputs)
    torch.testing.assert_close(host.run(model), expected, atol=1e-5, rtol=0)
    assert predict(model, host.inputs, 2).epistemic.max() > 0


def test_export_to_onnx(tmp_path):
    pytest.importorskip("onnxscript")
    onnx = pytest.importorskip("onnx")
    host = hosts.torchvision_vit()
    model = convert(host.model, layers="all")
    torch.onnx.export(model, (host.inputs,), str(tmp_path / "model.onnx"), dynamo=True, verbose=False)
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator(str(tmp_path / "model.onnx"))
    assert onnx.checker.check_model(str(tmp_path / "model.onnx")) is None
    result = evaluator.run(None, {evaluator.input_names[0]: host.inputs.numpy()})[0]
    torch.testing.assert_close(torch.as_tensor(result), host.run(), atol=1e-4, rtol=0)


@pytest.fixture
def group():
    """A process group of one; data-parallel training by two processes is in tests/cgp/attention/test_execution.py."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_sharded_training(group):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    host = hosts.transformers_bert()
    expected = host.run()
    model = convert(host.model, layers="all")
    mesh = init_device_mesh("cpu", (1,))
    for layer in model.bert.encoder.layer:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    torch.testing.assert_close(host.run(model), expected, atol=1e-5, rtol=0)
    before = [heads.log_amplitude.detach().full_tensor().clone() for heads in attention_blocks(model)]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    nn.functional.cross_entropy(host.call(model.train()), LABELS).backward()
    optimizer.step()
    for heads, was in zip(attention_blocks(model), before, strict=True):
        assert not torch.equal(heads.log_amplitude.detach().full_tensor(), was)


def test_training_by_lightning(tmp_path):
    """By accelerate: the Trainer's test in test_storage.py."""
    lightning = pytest.importorskip("lightning")
    host = hosts.torchvision_vit()

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = convert(host.model).train()
            self.objective = Objective(self.model, CategoricalLikelihood(5), num_data=3)

        def training_step(self, batch):
            return self.objective(*batch)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_steps=2, default_root_dir=tmp_path, **quiet)
    data = torch.utils.data.TensorDataset(host.inputs, LABELS)
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=3))
    assert module.model.encoder.layers[-1].self_attention.gp.log_amplitude.grad.any()


@pytest.fixture
def tokenizer(tmp_path):
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", *map(str, range(32))]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    return transformers.BertTokenizer(str(tmp_path / "vocab.txt"), padding_side="left")


TEXTS = ["good film", "bad bad film"]


@pytest.mark.parametrize("kind", [None, "multi_label_classification"])
def test_pipelines_say_how_sure_the_model_is_of_a_class(kind, tokenizer):
    """As the host's in mean mode; those of cgp as `predict`, in batches or not."""
    transformers = pytest.importorskip("transformers")
    host = hosts.transformers_bert().model
    host.config.problem_type = kind
    model = convert(host, amplitude=0.5)
    options = {"tokenizer": tokenizer, "top_k": None}
    both = [transformers.pipeline("text-classification", answer, **options)(TEXTS) for answer in (host, model)]
    for row, other in zip(*both, strict=True):
        assert [answer["score"] for answer in row] == pytest.approx([answer["score"] for answer in other], abs=1e-6)
    task = "classification" if kind is None else "multilabel"
    expected = predict(model, dict(tokenizer(TEXTS, return_tensors="pt", padding=True)), seed=0, task=task)
    answers = pipeline("text-classification", model, seed=0, batch_size=2, **options)(TEXTS)
    for row, p, total, epistemic in zip(
        answers, expected.probabilities, expected.total, expected.epistemic, strict=True
    ):
        assert [answer["score"] for answer in row] == pytest.approx(sorted(p.tolist(), reverse=True))
        assert [answer["total"] for answer in row] == pytest.approx([total.sum().item()] * 5)
        assert [answer["epistemic"] for answer in row] == pytest.approx([epistemic.sum().item()] * 5)
    assert expected.epistemic.max() > 0
    answer = pipeline("text-classification", model, tokenizer=tokenizer)(TEXTS[0])
    assert answer[0].keys() == {"label", "score", "total", "epistemic"}


def test_pipelines_of_images():
    transformers = pytest.importorskip("transformers")
    image = pytest.importorskip("PIL.Image").new("RGB", (16, 16), "red")
    processor = transformers.ViTImageProcessor(size={"height": 16, "width": 16})
    pipe = pipeline("image-classification", convert(hosts.transformers_vit().model), image_processor=processor)
    assert [[*answer] for answer in pipe(image, top_k=2)] == [["label", "score", "total", "epistemic"]] * 2


def test_pipelines_say_how_sure_the_model_is_of_each_token(tokenizer):
    transformers = pytest.importorskip("transformers")
    host = hosts.llama().model
    model = convert(host, amplitude=0.5)
    options = {"max_new_tokens": 4, "do_sample": False, "batch_size": 2}
    if "additional_outputs" in inspect.getsource(transformers.TextGenerationPipeline):
        with pytest.raises(ImportError, match="install a newer one"):
            pipeline("text-generation", model, tokenizer=tokenizer)
        return
    pipe = pipeline("text-generation", model, tokenizer=tokenizer, seed=0)
    several = pipe(TEXTS[0], num_return_sequences=2, do_sample=True, max_new_tokens=4)
    assert [len(answer["epistemic"]) for answer in several] == [4, 4]
    expected = transformers.pipeline("text-generation", host, tokenizer=tokenizer)(TEXTS, **options)
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    inputs.pop("token_type_ids")
    result = generate(model, inputs, num_samples=16, seed=0, max_new_tokens=4, do_sample=False)
    for (answer,), (other,), total, epistemic in zip(
        pipe(TEXTS, **options), expected, result.total, result.epistemic, strict=True
    ):
        assert answer["generated_text"] == other["generated_text"]
        assert answer["total"] == pytest.approx(total.tolist())
        assert answer["epistemic"] == pytest.approx(epistemic.tolist())
        assert len(answer["log_probability"]) == 4


def test_other_pipelines_are_refused():
    pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="task: expected one of .*'text-generation'.*, got 'fill-mask'"):
        pipeline("fill-mask", hosts.transformers_bert().model)
