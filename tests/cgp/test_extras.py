"""Optional dependencies: errors that name the extra."""

import pytest

from cgp.extras import needs_extra


def test_a_missing_package_names_its_extra():
    message = r'plot: needs missing_package, .* pip install "cgp\[plot\]"'
    with pytest.raises(ImportError, match=message) as error, needs_extra("plot", "plot"):
        import missing_package.part  # noqa: F401
    assert error.value.name == "missing_package"


def test_a_missing_module_of_the_library_is_not_blamed_on_an_extra():
    with pytest.raises(ModuleNotFoundError, match="cgp.missing_module"), needs_extra("plot", "plot"):
        import cgp.missing_module  # noqa: F401


def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError), needs_extra("plot", "plot"):
        1 / 0  # noqa: B018
