"""Models and inputs from a file, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibration.capture.request import Request, parse_image
from calibration.capture.request_capture import captured_together, program_of
from tests.refusals import refusal
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, request: pytest.FixtureRequest) -> Write:
    """Writes a file, whose name no other test has, for Python imports a name once."""
    number = iter(range(100))
    stem = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)

    def written(text: str) -> str:
        path = tmp_path / f"{stem}_{next(number)}.py"
        path.write_text("import torch\nfrom torch import nn\n" + text, encoding="utf-8")
        return str(path)

    return written


def captured(model: str, **asked: object) -> CapturedStep:
    return next(captured_together((Request(model=model, batch_size=4, **({"image": (3,)} | asked)),)))  # type: ignore[arg-type]


def refused(model: str, **asked: object) -> str:
    return refusal(CaptureError, captured, model, **asked)


LINEAR = "def make():\n    return nn.Linear(3, 5)\n"
FORWARD = (
    "class make(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Linear(3, 5)\n"
    "    def forward(self, x):\n        "
)


@pytest.mark.parametrize(
    "text",
    [
        LINEAR,
        "class make(nn.Linear):\n    def __init__(self, width=5):\n        super().__init__(3, width)\n",
        "make = nn.Linear(3, 5)\n",
        "def make(width=5):\n    return nn.Linear(3, width)\n",
        "class make:\n    @staticmethod\n    def __new__(cls):\n        return nn.Linear(3, 5)\n",
    ],
)
def test_a_function_a_class_or_a_module_is_a_model(write: Write, text: str) -> None:
    """3 x 5 weights and 5 biases."""
    assert captured(f"{write(text)}:make").parameters == 20


def test_attributes_models_without_parameters_and_missing_inputs(write: Write) -> None:
    path = write("class Zoo:\n    @staticmethod\n    def small():\n        return nn.Linear(3, 5)\n")
    assert captured(f"{path}:Zoo.small").parameters == 20
    # A model without parameters is captured in inference alone.
    path = write("def make():\n    return nn.ReLU()\n")
    assert "no parameter requires a gradient" in refused(f"{path}:make")
    assert captured(f"{path}:make", mode=Mode.INFERENCE).saved_bytes == 0
    # Missing inputs and files are refused.
    linear = Path(write(LINEAR))
    assert "inputs are missing" in refused(f"{linear}:make", image=None)
    assert f"did you mean '{linear.name}'?" in refused(f"{linear.with_name(linear.name[1:])}:make")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def make(width):\n    return nn.Linear(3, width)\n", "py:3: make needs the arguments width"),
        ("def make():\n    return 3\n", "py:3: make returns an int"),
        ("def make():\n    return nn.ReLU(), 3\n", "py:3: make returns a tuple, expected a torch.nn.Module alone"),
        ("def make():\n    pass\n", "py:3: make returns nothing"),
        ("make = 3\n", "make is an int"),
        ("def makes():\n    pass\n", "did you mean 'makes'?"),
        ("def make():\n    raise ValueError('no such data')\n", "py:4: ValueError: no such data"),
        ("\nraise ValueError('broken')\n", "py:4: ValueError: broken"),
        ("import no_such_module\n", "py:3: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def make(:\n", "py:3: SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)\n", "(exit status 3)"),
        (f"{FORWARD}return x.long()\n", "1 tensor of torch.int64"),
        (f"{FORWARD}return None\n", "returns nothing"),
        (f"{FORWARD}return 'x'\n", "a str without a tensor"),
        (f"{FORWARD}return x * 2\n", "the loss has no gradient"),
        (f"{FORWARD}return self.w(x.t())\n", "py:8, in module w: aten.addmm.default: RuntimeError: "),
        (f"{FORWARD}return self.q(x)\n", "AttributeError: 'make' object has no attribute 'q'"),
    ],
)
def test_a_file_without_a_model_is_refused_with_its_line(write: Write, text: str, message: str) -> None:
    """Each file begins with two imports."""
    assert message in refused(f"{write(text)}:make")


@pytest.mark.parametrize(
    "returned",
    [
        "torch.ones(n, 3)",
        "(torch.ones(n, 3),)",
        "[torch.ones(n, 3)]",
        "{'input': torch.ones(n, 3)}",
        "((), {'input': torch.ones(n, 3)})",
    ],
)
def test_inputs_are_a_tensor_a_tuple_a_dictionary_or_both(write: Write, returned: str) -> None:
    path = write(f"{LINEAR}def inputs(n):\n    return {returned}\n")
    step = captured(f"{path}:make", inputs=f"{path}:inputs", image=None)
    assert [each.nbytes for each in step.storages if each.name == "input 0"] == [48]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def inputs():\n    pass\n", "py:5: inputs takes no argument"),
        ("def inputs(n, m):\n    pass\n", "py:5: inputs needs the arguments n, m"),
        ("def inputs(n):\n    return 3\n", "py:5: inputs returns an int"),
        ("def inputs(n):\n    return {}[n]\n", "py:6: KeyError: 4"),
        ("def inputs(n):\n    return {'x': torch.ones(n, 3)}\n", "unexpected keyword argument 'x'"),
        ("inputs = torch.ones(4, 3)\n", "inputs is a Tensor"),
    ],
)
def test_inputs_of_another_kind_are_refused(write: Write, text: str, message: str) -> None:
    path = write(LINEAR + text)
    assert message in refused(f"{path}:make", inputs=f"{path}:inputs", image=None)


def test_inputs_may_be_of_so_many_tokens(write: Write) -> None:
    model = "def make():\n    return nn.Embedding(2, 5)\n"
    path = write(f"{model}def inputs(n, tokens):\n    return torch.zeros(n, tokens, dtype=torch.int64)\n")
    step = captured(f"{path}:make", inputs=f"{path}:inputs", image=None, tokens=7)
    assert (step.sample, step.sample_elements) == ("sequence", 7)
    both = "class Both(nn.Embedding):\n    def forward(self, x, ids):\n        return x + super().forward(ids).sum()\n"
    given = "def inputs(n, tokens):\n    return torch.zeros(n, 3), torch.zeros(n, tokens, dtype=torch.int64)\n"
    path = write(f"{both}def make():\n    return Both(2, 5)\n{given}")
    step = captured(f"{path}:make", inputs=f"{path}:inputs", image=None, tokens=7)
    assert (step.sample, step.sample_elements) == ("sequence", 7)
    assert "returns all arguments" in refused(f"{path}:make", image=None, tokens=7)
    path = write(f"{model}def inputs(n, tokens):\n    return torch.zeros(n, tokens, dtype=torch.int64)\n")
    message = refused(f"{path}:make", inputs=f"{path}:inputs", image=None)
    assert "inputs needs the arguments n, tokens, expected a function of the batch size" in message


def test_integers_are_sequences(write: Write) -> None:
    """Four sequences of nine tokens, in eight bytes each."""
    model = "def make():\n    return nn.Embedding(2, 5)\n"
    path = write(f"{model}def inputs(n):\n    return torch.zeros(n, 9, dtype=torch.int64)\n")
    step = captured(f"{path}:make", inputs=f"{path}:inputs", image=None)
    assert (step.batch_size, step.sample, step.sample_elements) == (4, "sequence", 9)


def test_tokens_are_of_any_vocabulary(write: Write) -> None:
    """4 sequences of 6 tokens with a vocabulary of 2."""
    path = write("def make():\n    return nn.Sequential(nn.Embedding(2, 5), nn.Linear(5, 7))\n")
    step = captured(f"{path}:make", tokens=6, image=None)
    assert (step.sample, step.sample_elements) == ("sequence", 6)
    assert "cross entropy of its output, 4x6x7" in step.notes[-1]
    assert [each.nbytes for each in step.storages if each.name == "input 0"] == [4 * 6 * 8]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"model": "resnet50"}, "'resnet50'"),
        ({"model": "train.py"}, "expected train.py:NAME"),
        ({"model": "torchvison:resnet50"}, "did you mean 'torchvision'?"),
        ({"model": "timm:x", "batch_size": 0}, "--batch: found 0"),
        ({"model": "timm:x", "tokens": -1}, "--tokens: found -1"),
        ({"model": "timm:x", "accumulate": 0}, "--accumulate: found 0"),
        ({"model": "timm:x", "tokens": 1, "image": (1,)}, "--image and --tokens: found both"),
        ({"model": "timm:x", "real": True, "pretended": "rtx_4090"}, "--real and --pretend: found both"),
        ({"model": "timm:x", "inputs": "inputs"}, "found 'inputs', expected FILE.py:NAME"),
        ({"model": "timm:x", "optimizer": "adamv"}, "did you mean 'adam'"),
        ({"model": "no_such_folder/x.py:make"}, "no_such_folder/x.py: there is no such file"),
    ],
)
def test_invalid_requests_are_refused(asked: dict[str, object], message: str) -> None:
    assert message in refusal(CaptureError, program_of, Request(**({"batch_size": 1} | asked)))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "3x", "x3", "3x0x2", "3,224,224", "-3x2", "1x2x3x4x5x6"])
def test_invalid_sizes_are_refused(text: str) -> None:
    assert parse_image("3x224x224") == (3, 224, 224)
    with pytest.raises(CaptureError, match="--image: found"):
        parse_image(text)


def test_channels_that_are_last_are_moved_ahead_by_the_message() -> None:
    """Of 224 x 160 x 3 the 3 are channels; 3 x 4 x 3 may be meant so."""
    with pytest.raises(CaptureError, match="channels first, as 3x224x160"):
        parse_image("224x160x3")
    assert parse_image("3x4x3") == (3, 4, 3)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("config.json", ("config.json:llama", "llama")),
        (".", ("config.json:llama", "llama")),
        ("Llama-8B", ("Llama-8B", "Llama-8B")),
        ("Llama-8B/config.json", ("Llama-8B/config.json", "Llama-8B")),
        ("models.py:unet", ("models.py:unet", "unet")),
        ("models.py:make", ("models.py:make", "models")),
        ("timm:convnext_base", ("timm:convnext_base", "convnext_base")),
    ],
)
def test_models_have_names(model: str, names: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("Llama-8B").mkdir()
    for folder in (".", "Llama-8B"):
        Path(folder, "config.json").write_text('{"model_type": "llama", "hidden_size": 8}')
    asked = Request(model=model, batch_size=1)
    assert (asked.name, asked.short_name) == names


def test_a_config_without_a_type_is_called_as_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for text in ("{}", "no JSON", '{"model_type": "a/b/c"}'):
        Path("config.json").write_text(text)
        assert Request(model="config.json", batch_size=1).short_name == "here"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "def a(): ...\ndef b(n): ...\ndef c(n=1): ...\ndef _d(): ...\nclass E: ...\n",
            "NAME, where NAME is one of a, c",
        ),
        ("class E: ...\n", "NAME, where NAME is one of E"),
        ("def (", "NAME"),
    ],
)
def test_a_file_without_a_name_says_what_it_has(text: str, found: str, tmp_path: Path) -> None:
    """A function that needs an argument makes no model."""
    (tmp_path / "net.py").write_text(text)
    said = refusal(CaptureError, Request(model=f"{tmp_path}/net.py", batch_size=1).check)
    assert said.endswith(f"expected {tmp_path}/net.py:{found}")


def test_one_number_for_an_image_is_explained(tmp_path: Path) -> None:
    """It is what a linear layer takes, and a convolution does not."""
    path = tmp_path / "a_convolution.py"
    path.write_text("from torch import nn\ndef make():\n    return nn.Conv2d(3, 4, 3)\n")
    with pytest.raises(CaptureError, match="--image 512 is one number a sample, expected CxHxW"):
        next(captured_together((Request(model=f"{path}:make", batch_size=2, image=(512,)),)))


@pytest.mark.parametrize(("batch", "said"), [(2, "to have 3 channels, but got 2"), (3, "took the batch of 3 for the")])
def test_two_numbers_for_an_image_are_explained(batch: int, said: str, tmp_path: Path) -> None:
    """A batch of as many as there are channels passes as one image without a batch, and is refused as well."""
    path = tmp_path / "a_convolution.py"
    path.write_text("from torch import nn\ndef make():\n    return nn.Conv2d(3, 4, 3)\n")
    asked = Request(model=f"{path}:make", batch_size=batch, image=(3, 224))
    with pytest.raises(CaptureError, match=r"--image 3x224 is two numbers a sample, .*as 3x224x224$") as refused:
        next(captured_together((asked,)))
    assert said in str(refused.value)
    assert str(refused.value).count("3x224x224") == 1


@pytest.mark.parametrize("asked", [{"image": (3, 8, 8)}, {"tokens": 8}])
def test_what_does_not_take_an_image_or_tokens_is_shown_how_to_get_others(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    """A convolution of videos takes the two images for one video of two channels; a product takes no 8 numbers."""
    path = tmp_path / "a_video.py"
    layer = "Conv3d(3, 4, 3)" if "image" in asked else "Sequential(nn.Embedding(2, 3), nn.Linear(5, 1))"
    path.write_text(f"from torch import nn\ndef make():\n    return nn.{layer}\n")
    with pytest.raises(CaptureError, match=r"the input is 2x(3x8x)?8, for others expected --inputs FILE.py:NAME"):
        next(captured_together((Request(model=f"{path}:make", batch_size=2, **asked),)))
