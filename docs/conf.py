"""How Sphinx makes the documentation; `make docs` calls it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generate import write_reference  # lies beside this file

import vdnnsim

project = "vdnnsim"
author = "the vdnnsim authors"
version = release = vdnnsim.__version__
copyright = author  # noqa: A001  # as Sphinx calls it

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click", "sphinx_copybutton"]
exclude_patterns = ["_build", "reference/generated"]
myst_enable_extensions = ["colon_fence", "deflist", "tasklist"]
myst_heading_anchors = 3
myst_links_external_new_tab = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
default_role = "code"  # what docstrings set in single backticks
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_title = "vdnnsim"
html_static_path = ["static"]
html_css_files = ["house.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072b2", "color-brand-content": "#0072b2"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#56b4e9"},
    "sidebar_hide_name": False,
}

write_reference(Path(__file__).parent / "reference" / "generated")
