"""A user's file: what makes a model, what makes its inputs, and what is said of each that does not."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from calibration.capture.request import Request, parse_image
from calibration.capture.sources import captured_of, program_of
from calibration.capture.user_code import arguments_of, without_values
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, request: pytest.FixtureRequest) -> Write:
    """Writes a user's file, whose name no other test has, for Python imports a name once."""
    number = iter(range(100))
    stem = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)

    def written(text: str) -> str:
        path = tmp_path / f"{stem}_{next(number)}.py"
        path.write_text("import torch\nfrom torch import nn\n" + text, encoding="utf-8")
        return str(path)

    return written


def captured(model: str, **asked: object) -> CapturedStep:
    return captured_of(Request(model=model, batch_size=4, **({"image": (3,)} | asked)))  # type: ignore[arg-type]


def refused(model: str, **asked: object) -> str:
    with pytest.raises(CaptureError) as caught:
        captured(model, **asked)
    assert "\n" not in str(caught.value)
    return str(caught.value)


LINEAR = "def make():\n    return nn.Linear(3, 5)\n"


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


def test_a_file_imports_its_neighbours(write: Write, tmp_path: Path) -> None:
    (tmp_path / "its_neighbour.py").write_text("WIDTH = 7\n", encoding="utf-8")
    path = write("from its_neighbour import WIDTH\ndef make():\n    return nn.Linear(3, WIDTH)\n")
    assert captured(f"{path}:make").parameters == 28


def test_a_name_may_be_an_attribute(write: Write) -> None:
    path = write("class Zoo:\n    @staticmethod\n    def small():\n        return nn.Linear(3, 5)\n")
    assert captured(f"{path}:Zoo.small").parameters == 20


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "def make(width):\n    return nn.Linear(3, width)\n",
            "py:3: make needs the arguments width, expected a function",
        ),
        ("def make():\n    return 3\n", "py:3: make returns an int, expected a torch.nn.Module"),
        ("def make():\n    pass\n", "py:3: make returns nothing, expected a torch.nn.Module"),
        ("make = 3\n", "make is an int, expected a function without arguments that returns a torch.nn.Module"),
        ("def makes():\n    pass\n", "'make' is not a name in this file; did you mean 'makes'?"),
        ("def make():\n    raise ValueError('no such data')\n", "py:4: ValueError: no such data"),
        ("\nraise ValueError('broken')\n", "py:4: ValueError: broken"),
        ("import no_such_module\n", "py:3: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def make(:\n", "py:3: SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)\n", "the file ends Python when it is imported (exit status 3)"),
    ],
)
def test_what_makes_no_model_is_refused_with_its_line(write: Write, text: str, told: str) -> None:
    """The two imports that each file begins with take lines 1 and 2."""
    assert told in refused(f"{write(text)}:make")


MODEL = (
    "class make(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Linear(3, 5)\n"
)


@pytest.mark.parametrize(
    ("forward", "told"),
    [
        ("return x.long()", "the model returns 1 tensor of torch.int64, expected a tensor of floats"),
        ("return None", "the model returns nothing, expected a tensor of floats"),
        ("return 'x'", "the model returns a str without a tensor, expected a tensor of floats"),
        ("return x * 2", "the loss has no gradient"),
        ("return self.w(x.t())", "py:8, in module w: aten.addmm.default: RuntimeError: "),
        ("return self.q(x)", "AttributeError: 'make' object has no attribute 'q'"),
    ],
)
def test_a_forward_that_has_no_loss_is_refused(write: Write, forward: str, told: str) -> None:
    path = write(f"{MODEL}    def forward(self, x):\n        {forward}\n")
    assert told in refused(f"{path}:make")


def test_a_failure_in_forward_names_its_line(write: Write) -> None:
    """Two imports, four lines of the class, its forward in line 7."""
    path = write(f"{MODEL}    def forward(self, x):\n        return self.w(x.t())\n")
    assert f"{path}:8" in refused(f"{path}:make")


def test_a_model_without_parameters_is_captured_in_inference_alone(write: Write) -> None:
    path = write("def make():\n    return nn.ReLU()\n")
    assert "no parameter requires a gradient" in refused(f"{path}:make")
    assert captured(f"{path}:make", mode=Mode.INFERENCE).saved_bytes == 0


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
    """Four rows of three numbers of four bytes."""
    path = write(f"{LINEAR}def inputs(n):\n    return {returned}\n")
    step = captured(f"{path}:make", inputs=f"{path}:inputs", image=None)
    assert [each.nbytes for each in step.storages if each.name == "input 0"] == [48]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def inputs():\n    pass\n", "py:5: inputs takes no argument, expected a function of the batch size"),
        (
            "def inputs(n, m):\n    pass\n",
            "py:5: inputs needs the arguments n, m, expected a function of the batch size",
        ),
        ("def inputs(n):\n    return 3\n", "py:5: inputs returns an int, expected a tensor, a tuple of arguments"),
        ("def inputs(n):\n    return {}[n]\n", "py:6: KeyError: 4"),
        ("def inputs(n):\n    return {'x': torch.ones(n, 3)}\n", "unexpected keyword argument 'x'"),
        ("inputs = torch.ones(4, 3)\n", "inputs is a Tensor, expected a function of the batch size"),
    ],
)
def test_inputs_of_another_kind_are_refused(write: Write, text: str, told: str) -> None:
    path = write(LINEAR + text)
    assert told in refused(f"{path}:make", inputs=f"{path}:inputs", image=None)


def test_inputs_of_integers_are_sequences(write: Write) -> None:
    """Four sequences of nine tokens, in eight bytes each."""
    model = "def make():\n    return nn.Embedding(2, 5)\n"
    path = write(f"{model}def inputs(n):\n    return torch.zeros(n, 9, dtype=torch.int64)\n")
    step = captured(f"{path}:make", inputs=f"{path}:inputs", image=None)
    assert (step.batch_size, step.sample, step.sample_elements) == (4, "sequence", 9)


def test_floats_of_inputs_are_not_known_and_numbers_are() -> None:
    arguments = arguments_of({"x": torch.ones(2, 3, requires_grad=True), "i": torch.tensor([5])}, "inputs")
    emptied = without_values(arguments)[1]
    assert emptied["x"] is not arguments[1]["x"]
    assert emptied["x"].requires_grad
    assert emptied["i"].tolist() == [5]


def test_a_model_in_words_is_asked_what_it_is_given(write: Write) -> None:
    told = refused(f"{write(LINEAR)}:make", image=None)
    assert "what is the model given? --image 3x224x224, --tokens 1024, or --inputs FILE.py:NAME" in told


def test_tokens_are_numbers_that_any_vocabulary_has(write: Write) -> None:
    """Embeddings of 5 numbers for 4 sequences of 6 tokens; logits of 7: cross entropy of 24 rows, as many labels."""
    path = write("def make():\n    return nn.Sequential(nn.Embedding(2, 5), nn.Linear(5, 7))\n")
    step = captured(f"{path}:make", tokens=6, image=None)
    assert (step.sample, step.sample_elements) == ("sequence", 6)
    assert "assumed is cross entropy of its output, 4x6x7" in step.notes[-1]
    assert [each.nbytes for each in step.storages if each.name == "input 0"] == [4 * 6 * 8]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"model": "resnet50"}, "'resnet50' is no model; expected FILE.py:NAME, torchvision:NAME"),
        ({"model": "train.py"}, "'train.py' does not say what makes the model, expected train.py:NAME"),
        ({"model": "torchvison:resnet50"}, "'torchvison' is not a library of models; did you mean 'torchvision'?"),
        ({"model": "timm:x", "batch_size": 0}, "--batch: found 0, expected an integer from 1 on"),
        ({"model": "timm:x", "tokens": -1}, "--tokens: found -1, expected an integer from 1 on"),
        ({"model": "timm:x", "accumulate": 0}, "--accumulate: found 0, expected an integer from 1 on"),
        ({"model": "timm:x", "tokens": 1, "image": (1,)}, "--image and --tokens: found both, expected one"),
        ({"model": "timm:x", "inputs": "inputs"}, "found 'inputs', expected FILE.py:NAME"),
        ({"model": "timm:x", "optimizer": "adamv"}, "--optimizer: 'adamv' is not an optimizer; did you mean 'adam'"),
        ({"model": "no_such_folder/x.py:make"}, "no_such_folder/x.py: there is no such file"),
    ],
)
def test_words_that_make_no_sense_are_refused(asked: dict[str, object], told: str) -> None:
    with pytest.raises(CaptureError) as caught:
        program_of(Request(**({"batch_size": 1} | asked)))  # type: ignore[arg-type]
    assert told in str(caught.value)


def test_a_file_that_is_nearly_there_is_offered(write: Write) -> None:
    path = Path(write(LINEAR))
    assert f"did you mean '{path.name}'?" in refused(f"{path.with_name(path.name[1:])}:make")


@pytest.mark.parametrize("text", ["", "3x", "x3", "3x0x2", "3,224,224", "-3x2", "1x2x3x4x5x6"])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(CaptureError, match="expected sizes, channels first, as 3x224x224"):
        parse_image(text)


def test_sizes_are_read() -> None:
    assert parse_image("3x224x224") == (3, 224, 224)
