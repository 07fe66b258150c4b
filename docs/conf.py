"""Settings of Sphinx. `make docs` builds the pages, and a warning is an error."""

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_extensions")]
os.environ.setdefault("MPLBACKEND", "Agg")

from sphinx.application import Sphinx

import cgp  # the checkout's, which the line above puts first

project = "cgp"
author = "The cgp developers"
copyright = f"2026, {author}"
release = version = cgp.__version__

extensions = [
    "mathml",  # of docs/_extensions, as folding, gallery and pages
    "folding",
    "pages",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_extensions", "examples", "sg_execution_times.rst"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
default_role = "code"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

python_use_unqualified_type_names = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_numpy_docstring = False
# Attributes as fields of the class, or a NamedTuple's members would be described twice.
napoleon_use_ivar = True

# Every example runs in each build that has seen a change of it; one that fails fails the build.
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "gallery.reading_order",
    "reset_modules": ("gallery.reset",),
    "capture_repr": ("_repr_html_",),
    "abort_on_example_error": True,
    "parallel": True,  # as many processes as the build has
    "download_all_examples": False,
    "min_reported_time": 1_000_000,
    "show_memory": False,
    "image_srcset": ["2x"],
    "thumbnail_size": (420, 280),
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("cgp", "models"),
    "remove_config_comments": True,
}

html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")  # the stable version's, of every version's pages
html_theme = "pydata_sphinx_theme"
html_title = f"cgp {release}"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["cgp.css"]
html_js_files = ["folds.js"]
# Pages without sections beneath them: an empty sidebar would leave a third of the width unused.
_SINGLE = ("install", "tutorial-tables", "tutorial-networks", "notes", "notes/*")
_TABLES = (f"results/papers/{paper}-*" for paper in ("cgpt", "kep", "sgpa"))
html_sidebars = {page: [] for page in (*_SINGLE, *_TABLES)}
html_theme_options = {
    "show_nav_level": 2,
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}


# What PyTorch and GPyTorch call, and no user.
_HOOKS = ("extra_repr", "local_load_samples", "num_outputs_per_input", "prediction_strategy")


def skip_inherited_prose(*event: object) -> bool | None:
    """Leave out "Alias for field number 0", hooks, and what scikit-learn generates: their texts are not ours."""
    _, _, name, member, _, _ = event
    if name in _HOOKS:
        return True
    generated = str(name).startswith("set_") and str(name).endswith("_request")
    generated = generated or str(getattr(member, "__module__", "")).startswith("sklearn.")
    return True if generated or type(member).__name__ == "_tuplegetter" else None


def mend_links_back(app: Sphinx, page: str, _template: str, context: dict[str, object], _doctree: object) -> None:
    """Viewcode takes all names of a file to be documented under one module: some are so under the file's own."""
    known, module = app.env.domaindata["py"]["objects"], page.removeprefix("_modules/").replace("/", ".")

    def right(link: re.Match[str]) -> str:
        full = f"{module}.{link[2].rpartition('.')[2]}"
        return link[0] if link[2] in known or full not in known else f"{link[1]}{full}"

    if page.startswith("_modules/") and "body" in context:
        context["body"] = re.sub(r"(viewcode-back\" href=\"[^\"#]*#)([\w.]+)", right, str(context["body"]))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("html-page-context", mend_links_back)
    app.connect("autodoc-skip-member", skip_inherited_prose)
