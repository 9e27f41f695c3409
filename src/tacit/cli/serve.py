"""``tacit serve``: the service of an app, its tokens, and whether all is well with it."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import terminal
from tacit.cli.terminal import asked, command, flag, given, print_json, print_table, say
from tacit.privacy.errors import MissingExtra

if TYPE_CHECKING:
    from tacit.service.app_file import App

_FILE, _CODE = "TACIT_SERVE_FILE", "TACIT_SERVE_ALLOW_CODE"


@command()
def _serve(
    file: Annotated[str, given("APP.toml", "The file of the app.")],
    check: Annotated[bool, flag("Say whether all is well; exit code 1 if not.", "--check")] = False,
    new_token: Annotated[
        str, asked("ROLE", "Make a token for a device, curator or officer; shown once.")
    ] = "",
    revoke: Annotated[str, asked("NAME", "Revoke a token, by the 8 digits in it.")] = "",
    allow_code: terminal.AllowCode = False,
    as_json: terminal.Json = False,
) -> None:
    from tacit.service import tokens
    from tacit.service.app_file import read_app

    app = read_app(file, logs=False, allow_code=allow_code)
    if new_token:
        token = tokens.new_token(app.open(), new_token)
        typer.echo(json.dumps({"role": new_token, "token": token}) if as_json else token)
    elif revoke:
        tokens.revoke_token(app.open(), revoke)
        say(json.dumps({"revoked": revoke}) if as_json else f"{revoke} opens nothing any more")
    elif check:
        _check(app, as_json)
    else:
        os.environ |= {_FILE: os.path.abspath(file), _CODE: "1" if allow_code else ""}
        _listen(app)


def _check(app: App, as_json: bool) -> None:
    from tacit.service.check import checked

    found = checked(app)
    well = all(ok for _, ok, _ in found)
    if as_json:
        print_json({"well": well, "checks": found})
    else:
        print_table(("", "", ""), [(k, "well" if ok else "WRONG", words) for k, ok, words in found])
    raise typer.Exit(0 if well else 1)


def _listen(app: App) -> None:
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra("serving needs more: pip install 'tacit[serve]'") from None
    serving = app.serving
    # The run in the store, or why it is not this one, before anything listens.
    app.agent().store.close()
    say(f"http{'s' if serving.certificate else ''}://{serving.host}:{serving.port}")
    from tacit.service.entrance import Door

    uvicorn.run(
        "tacit.cli.serve:worker",
        factory=True,
        http=Door,
        proxy_headers=False,  # we know whose are ours
        ws="none",
        host=serving.host,
        port=serving.port,
        workers=serving.workers,
        ssl_certfile=str(app.folder / serving.certificate) if serving.certificate else None,
        ssl_keyfile=str(app.folder / serving.certificate_key) if serving.certificate else None,
        # A line per request would hold addresses, and what clients put into theirs.
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=10,
        limit_concurrency=2000,
    )


def worker() -> Any:
    """The application of one process; the file's name is in the environment."""
    from tacit.service.app_file import read_app
    from tacit.service.http import Service, create

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    allow_code = os.environ.get(_CODE) == "1"
    app = read_app(os.environ[_FILE], logs=False, allow_code=allow_code)
    return create(Service(app), tools())


def tools() -> Any:
    """Reports and differences of policies for the pages, as the commands make them."""
    from tacit.cli.policy import differences
    from tacit.cli.report import page, report
    from tacit.service.pages import Tools

    return Tools(lambda *given: page(report(*given)), differences)
