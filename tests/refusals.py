"""Tests that only look at what is refused, and in which words."""

import pytest

from tacit.privacy.errors import InvalidArgument


def refusals(call, *cases, error=InvalidArgument):
    """A test that each call is refused: for pairs of what it is given and words of the error."""

    @pytest.mark.parametrize(("given", "words"), cases)
    def test(given, words):
        with pytest.raises(error, match=words):
            call(given)

    return test
