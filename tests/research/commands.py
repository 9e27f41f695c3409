"""What holds for the command lines of all figures and tables."""

import pytest

REFUSED = (
    *("--epsilon=0", "--epsilon=much", "--delta=1", "--users=0", "--seed=-1"),
    *("--output=picture.gif", "--output=/no/such/folder/demo.png", "--nonsense"),
)
"""What figures with a budget refuse."""


def refused_in_one_line(main, arguments, capsys):
    """Arguments are refused; what is said."""
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("\n")
    assert printed.err.count("\n") == 1
    return printed.err


def names_what_it_refuses(main, arguments, tmp_path, capsys):
    """The first of some arguments is refused by its name, before a picture is made."""
    picture = tmp_path / "demo.png"
    said = refused_in_one_line(main, [f"--output={picture}", *arguments.split()], capsys)
    assert arguments.partition("=")[0].removeprefix("--") in said
    assert not picture.exists()
