"""Models of libraries, which the tests need installed."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from calibration.capture import libraries, request_capture
from calibration.capture.hub_models import HubModel, hub_model, hub_models
from calibration.capture.libraries import NamedModel, library, unknown_name
from calibration.capture.request import Request
from calibration.capture.request_capture import captured_together, program_of
from calibration.capture.transformers_models import transformers_model
from tests.refusals import refusal
from vdnnsim.errors import CaptureError


def request(model: str, **asked: object) -> Request:
    return Request(model=model, batch_size=2, optimizer="none", **asked)  # type: ignore[arg-type]


def refused(model: str, **asked: object) -> str:
    return refusal(CaptureError, program_of, request(model, **asked))


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (ModuleNotFoundError("No module named 'timm'", name="timm"), "timm is not installed: pip install timm"),
        (ModuleNotFoundError("No module named 'yaml'", name="yaml"), "timm cannot be imported, yaml is missing"),
        (RuntimeError("operator nms\ndoes not exist"), "installed but cannot be imported: operator nms does not exist"),
    ],
)
def test_a_failed_import_says_why(failure: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise failure

    monkeypatch.setattr(libraries, "import_module", broken)
    with pytest.raises(CaptureError, match=message):
        library("timm")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("resnet19", "'resnet19' is not a model of timm; did you mean 'resnet18'? (resnet18, resnet50)"),
        ("vitamin", "'vitamin' is not a model of timm; expected vit_base_patch16_224"),
        ("unknown", "'unknown' is not a model of timm"),
    ],
)
def test_near_names_are_offered(found: str, message: str) -> None:
    assert str(unknown_name("timm", found, ["resnet50", "resnet18", "vit_base_patch16_224"])) == message


@pytest.mark.parametrize(
    ("name", "shape", "note"),
    [
        ("resnet50", (3, 224, 224), ""),
        ("inception_v3", (3, 299, 299), ""),
        # Of three sets of weights the first is for images of 518 x 518, which this model does not take.
        ("vit_h_14", (3, 224, 224), ""),
        ("efficientnet_b7", (3, 600, 600), ""),
        ("fcn_resnet50", (3, 520, 520), ""),
        ("r3d_18", (3, 16, 112, 112), "clips of 16 frames are assumed"),
    ],
)
def test_input_sizes_of_torchvision(name: str, shape: tuple[int, ...], note: str) -> None:
    pytest.importorskip("torchvision")
    program, _ = program_of(request(f"torchvision:{name}"))
    (image,), _ = program.make_inputs()
    assert image.shape == (2, *shape)
    assert program.notes[0].startswith(note or "inputs are of the size")
    assert "torchvision " in program.versions


def test_a_model_of_torchvision_is_captured() -> None:
    """ResNet-18 has 11,689,512 parameters (torchvision's documentation); auxiliary heads are beside, in GoogLeNet."""
    pytest.importorskip("torchvision")
    assert "expected --inputs FILE.py:NAME" in refused("torchvision:fasterrcnn_resnet50_fpn")
    step = next(captured_together((request("torchvision:resnet18", image=(3, 64, 64)),)))
    assert step.parameters == 11_689_512
    assert len(next(captured_together((request("torchvision:googlenet", image=(3, 96, 96)),))).notes) == 1


def test_a_model_of_timm_is_captured_in_its_size() -> None:
    """ViT-Tiny has 5,717,416 parameters: Touvron et al. 2021, Table 1, 5 million."""
    pytest.importorskip("timm")
    step = next(captured_together((request("timm:vit_tiny_patch16_224"),)))
    assert step.parameters == 5_717_416
    assert "by default: 3x224x224" in step.notes[0]
    assert "did you mean 'convnext_base'?" in refused("timm:convnext_bse")
    assert refused("timm:resnet18", tokens=5) == "--tokens: timm:resnet18 takes images, expected --image"
    two = "--image: found 3x224, expected 3 sizes for timm:resnet18, as 3x224x224"
    assert refused("timm:resnet18", image=(3, 224)) == two


@pytest.mark.parametrize(
    "known", {each.name: each for each in hub_models().values()}.values(), ids=lambda each: each.name
)
def test_published_numbers_of_parameters(known: HubModel) -> None:
    pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers_model(known.name).make()
    assert sum(each.numel() for each in model.parameters()) == known.parameters


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B"),
        ("llama-3-8b", "meta-llama/Meta-Llama-3-8B"),
        ("META-LLAMA/llama-2-7B", "meta-llama/Llama-2-7b-hf"),
        ("gpt2-xl", "openai-community/gpt2-xl"),
    ],
)
def test_names_of_the_hub(name: str, known: str) -> None:
    found = hub_model(name)
    assert found is not None
    assert found.name == known


def test_an_unknown_name_of_the_hub_is_asked_for_its_configuration() -> None:
    assert hub_model("someone/model") is None
    assert "https://huggingface.co/someone/model/resolve/main/config.json" in refused("someone/model")


@pytest.fixture
def three_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them have `net`."""
    names = {"torchvision": ["net", "vision"], "timm": ["net", "image"], "transformers": ["text"]}
    monkeypatch.setattr(request_capture, "find_spec", str)

    def model(library_name: str, name: str) -> NamedModel:
        return NamedModel(nn.Identity, image=(3, 4, 4), note=f"{name} of {library_name}")

    monkeypatch.setattr(request_capture, "NAMED", {each: partial(model, each) for each in names})
    for library_name, known in names.items():
        monkeypatch.setattr(request_capture, f"{library_name}_names", partial(list, known))
    monkeypatch.setattr(request_capture, "library_version", lambda name: f"{name} 1")


@pytest.mark.usefixtures("three_libraries")
@pytest.mark.parametrize(
    ("name", "note"),
    [("vision", "vision of torchvision"), ("image", "image of timm"), ("Text", "Text of transformers")],
)
def test_a_name_alone_is_of_the_library_that_has_it(name: str, note: str) -> None:
    program, _ = program_of(request(name))
    assert program.notes[0] == note
    assert program.versions == f"torch 1, {note.rsplit(maxsplit=1)[-1]} 1"


@pytest.mark.usefixtures("three_libraries")
def test_a_name_that_no_library_or_several_have_is_refused() -> None:
    assert refused("net").endswith("torchvision:net and timm:net are models of this name, expected one of them")
    assert "is not a model of torchvision, timm, transformers; did you mean 'image'?" in refused("imagge")


def test_a_name_alone_without_libraries_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_capture, "find_spec", lambda _: None)
    assert refused("net").endswith("no library of models is installed: pip install torchvision timm transformers")


LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 8}
LLAMA |= {"intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT = {**LLAMA, "model_type": "bert", "architectures": ["BertForSequenceClassification"]}


def described(folder: Path, configuration: object) -> str:
    (folder / "config.json").write_text(json.dumps(configuration), encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("configuration", "labels"),
    [
        ({**LLAMA, "torch_dtype": "bfloat16"}, {"labels": (2, 5)}),
        (BERT, {"labels": (2,)}),
        ({**BERT, "architectures": ["BertForQuestionAnswering"]}, {"start_positions": (2,), "end_positions": (2,)}),
        ({**BERT, "architectures": ["BertModel"]}, {}),
        ({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}, {"labels": (2,)}),
    ],
)
def test_a_configuration_is_captured_in_the_class_that_it_names(
    configuration: dict[str, Any], labels: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    """In float32 whatever its weights are stored in; in a folder, or as a file."""
    pytest.importorskip("transformers")
    folder = described(tmp_path, configuration)
    program, _ = program_of(request(folder, tokens=5))
    _, kwargs = program.make_inputs()
    assert {name: tuple(each.shape) for name, each in kwargs.items() if name != "input_ids"} == labels
    step = next(captured_together((request(f"{folder}/config.json", tokens=5),)))
    assert step.parameter_bytes == 4 * step.parameters
    assert step.notes[0].startswith(f"{configuration['architectures'][0]} of ")


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ([], "config.json: cannot be read: Expected `object`"),
        ({}, "config.json: model_type: found nothing, which is no type of transformers"),
        ({**LLAMA, "model_type": "mine"}, "config.json: model_type: found 'mine'"),
        ({**LLAMA, "architectures": ["MineForCausalLM"]}, "config.json: architectures: found 'MineForCausalLM'"),
        ({**LLAMA, "quantization_config": {"bits": 4}}, "config.json: quantization_config: found quantized weights"),
    ],
)
def test_configurations_that_nothing_can_build(configuration: object, message: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    assert message in refused(described(tmp_path, configuration))


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    assert refused(str(tmp_path)) == f"{tmp_path}: has no config.json, expected a folder with one"
    assert refused(str(tmp_path / "config.json")) == f"{tmp_path / 'config.json'}: there is no such file"


def test_labels_and_loss_of_transformers() -> None:
    pytest.importorskip("transformers")
    assert "expected --tokens" in refused("transformers:gpt2", image=(3, 8, 8))
    program, loss = program_of(request("transformers:openai-community/GPT2", tokens=16))
    args, kwargs = program.make_inputs()
    assert args == ()
    assert {name: tuple(value.shape) for name, value in kwargs.items()} == {"input_ids": (2, 16), "labels": (2, 16)}
    assert (program.sample, program.sample_elements, loss.notes) == ("sequence", 16, ())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("llamma", "'llamma' is not a model of transformers; did you mean 'llama'?"),
        ("nougat", "transformers:nougat has no configuration by default"),
        ("musicgen", "transformers:musicgen takes neither an image nor tokens alone"),
        ("whisper", "transformers:whisper takes neither an image nor tokens alone"),
    ],
)
def test_names_that_transformers_cannot_build(name: str, message: str) -> None:
    pytest.importorskip("transformers")
    assert refused(f"transformers:{name}").startswith(message)
