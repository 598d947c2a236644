"""Models of libraries, which the tests need installed."""

import pytest
import torch

from calibration.capture import libraries
from calibration.capture.libraries import library, unknown_name
from calibration.capture.request import Request
from calibration.capture.sources import captured_of, program_of
from calibration.capture.transformers_models import SIZES, transformers_model
from vdnnsim.errors import CaptureError


def request(model: str, **asked: object) -> Request:
    return Request(model=model, batch_size=2, optimizer="none", **asked)  # type: ignore[arg-type]


def refused(model: str, **asked: object) -> str:
    with pytest.raises(CaptureError) as caught:
        program_of(request(model, **asked))
    return str(caught.value)


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
    step = captured_of(request("torchvision:resnet18", image=(3, 64, 64)))
    assert step.parameters == 11_689_512
    assert len(captured_of(request("torchvision:googlenet", image=(3, 96, 96))).notes) == 1


def test_a_model_of_timm_is_captured_in_its_size() -> None:
    """ViT-Tiny has 5,717,416 parameters: Touvron et al. 2021, Table 1, 5 million."""
    pytest.importorskip("timm")
    step = captured_of(request("timm:vit_tiny_patch16_224"))
    assert step.parameters == 5_717_416
    assert "by default: 3x224x224" in step.notes[0]
    assert "did you mean 'convnext_base'?" in refused("timm:convnext_bse")
    assert refused("timm:resnet18", tokens=5) == "--tokens: timm:resnet18 takes images, expected --image"


PARAMETERS = {
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "mistral-7b": 7_241_732_096,
    "gpt2-small": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "opt-125m": 125_239_296,
    "opt-1.3b": 1_315_758_080,
    "opt-6.7b": 6_658_473_984,
    "vit-base": 85_800_194,
    "vit-large": 303_303_682,
}


@pytest.mark.parametrize("name", SIZES)
def test_published_numbers_of_parameters(name: str) -> None:
    """As the published checkpoints have, heads tied as there; ViT with a head of 2 classes instead of 1,000."""
    pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers_model(name).make()
    assert sum(each.numel() for each in model.parameters()) == PARAMETERS[name]


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
