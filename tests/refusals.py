"""Tests that only look at what is refused, and in which words."""

from collections.abc import Callable
from typing import Any

import pytest

from tacit.privacy.errors import InvalidArgument


def refusals(
    call: Callable[[Any], Any], *cases: Any, error: type[Exception] = InvalidArgument
) -> Callable[[Any, str], None]:
    """A test that each call is refused: for pairs of what it is given and words of the error."""

    @pytest.mark.parametrize(("given", "words"), cases)
    def test(given: Any, words: str) -> None:
        with pytest.raises(error, match=words):
            call(given)

    return test
