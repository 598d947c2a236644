import sysconfig

import torch

from calibration.apply import saved_storage
from calibration.capture import schemas
from calibration.pretend.inside.user_lines import user_line, user_line_of

PACKAGES = sysconfig.get_path("purelib")
LIBRARY = sysconfig.get_path("stdlib")


def test_the_innermost_line_of_the_users_code() -> None:
    """Innermost first: PyTorch's, an installed package's, then two of the user's, of which the inner one counts."""
    frames = [
        (f"{PACKAGES}/torch/nn/functional.py", 10),
        (f"{PACKAGES}/timm/layers/mlp.py", 20),
        ("/projects/model.py", 30),
        ("/projects/train.py", 40),
    ]
    assert user_line(frames) == "/projects/model.py:30"
    # A loop's own line stands behind what follows its backward, where vdnnsim is run from its source as well.
    frames = [
        (schemas.__file__, 5),
        (saved_storage.__file__, 10),
        (f"{PACKAGES}/torch/autograd/graph.py", 20),
        ("/projects/train.py", 30),
    ]
    assert user_line(frames) == "/projects/train.py:30"
    # Program of packages alone has the innermost line beyond pytorch.
    frames = [
        (torch.__file__, 10),
        (f"{PACKAGES}/timm/layers/mlp.py", 20),
        (f"{PACKAGES}/timm/train.py", 30),
        (f"{LIBRARY}/runpy.py", 40),
    ]
    assert user_line(frames) == f"{PACKAGES}/timm/layers/mlp.py:20"
    # Code without a file has no line.
    assert not user_line([("<string>", 1), ("", 2)])
    assert user_line_of([{"filename": "/projects/train.py", "line": 4, "name": "main"}]) == "/projects/train.py:4"
