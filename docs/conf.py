"""Settings of Sphinx. `make docs` builds the pages, and a warning is an error."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("MPLBACKEND", "Agg")

from sphinx.application import Sphinx

import cgp  # the checkout's, which the line above puts first

project = "cgp"
author = "The cgp developers"
copyright = f"2026, {author}"
release = version = cgp.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "api/*/modules.rst"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
default_role = "code"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# One page a module, written anew at each build. A package's re-exports are described where they are defined.
apidoc_modules = [
    {
        "path": str(ROOT / package),
        "destination": f"api/{package}",
        "separate_modules": True,
        "module_first": True,
    }
    for package in ("cgp", "models")
]
apidoc_automodule_options = ["members", "show-inheritance"]
autodoc_default_options = {"ignore-module-all": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_numpy_docstring = False
# Attributes as fields of the class, or a NamedTuple's members would be described twice.
napoleon_use_ivar = True

html_theme = "pydata_sphinx_theme"
html_title = f"cgp {release}"
html_show_sourcelink = False
html_theme_options = {"show_nav_level": 2, "navigation_with_keys": False, "secondary_sidebar_items": ["page-toc"]}


def skip_inherited_prose(*event: object) -> bool | None:
    """Leave out "Alias for field number 0" and what scikit-learn generates: their texts are not ours."""
    _, _, name, member, _, _ = event
    generated = str(name).startswith("set_") and str(name).endswith("_request")
    return True if generated or type(member).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", skip_inherited_prose)
