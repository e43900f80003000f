"""`coldstream teach` and `coldstream serve`: label images while the network learns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.output import complain, say

if TYPE_CHECKING:
    from coldstream.serve.label_studio.client import LabelStudio
    from coldstream.serve.project import Project

journal_app = typer.Typer(help="The journal of a project: what was labelled, in order.")

Host = Annotated[str, typer.Option(help="The address to answer at. Another one than this machine needs a token.")]
Token = Annotated[
    str | None, typer.Option(envvar="COLDSTREAM_TOKEN", help="What requests must carry. Default: none is needed.")
]
Threads = Annotated[int, typer.Option(min=1, help="Threads of torch. Another number gives other last bits.")]
_PLACE = Path("runs") / "teach"


def teach(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="A folder of images. Without: handwritten digits, as a demo."),
    ] = None,
    project: Annotated[
        Path | None, typer.Option(help="The folder to keep labels and learner in. Default: runs/teach/NAME.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = 8321,
    host: Host = "127.0.0.1",
    token: Token = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    audit: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of the images that are drawn at random. Default: 0.2.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Which image is next: random, margin, coverage, mixture or spread. Kept by the project."),
    ] = None,
    rehearse: Annotated[
        int | None, typer.Option(min=0, help="Most updates on replayed images in idle time, after each label.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of a new project. Default: 0.")] = None,
    threads: Threads = 1,
) -> None:
    """Label a folder of images in the browser, while a network learns from every label.

    Labels are on disk when they are acknowledged. Ctrl-C stops; the same command goes on where it stopped.
    """
    from coldstream.serve.demo import write_digits

    if folder is None:
        place = project or _PLACE / "digits"
        source, name = write_digits(place / "digits"), "digits"
    else:
        if not folder.is_dir():
            raise ValueError(f"{str(folder)!r} is not a folder of images")
        source, name = folder, _name(folder.resolve().name)
        place = project or _PLACE / name
    given: dict[str, object] = {"audit": audit, "policy": policy, "rehearse": rehearse, "seed": seed}
    settings = {key: value for key, value in given.items() if value is not None}
    _run({name: (place, source, settings)}, host, port, token, browser, threads)


def serve(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="A folder whose folders are projects. Default: runs/teach.")
    ] = _PLACE,
    new: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=IMAGES]", help="Begin a project, with a folder of images or empty. Repeatable."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = 8321,
    host: Host = "127.0.0.1",
    token: Token = None,
    label_studio: Annotated[
        str | None, typer.Option(metavar="URL", help="Where Label Studio is, such as http://localhost:8080.")
    ] = None,
    label_studio_token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with your token of Label Studio.")
    ] = None,
    threads: Threads = 1,
) -> None:
    """Serve several projects: the page, the HTTP API and the backend of Label Studio.

    With --label-studio, the project NAME is a machine-learning backend of Label Studio at
    http://127.0.0.1:8321/label-studio/NAME.
    """
    from coldstream.serve.journal import FILE

    projects: dict[str, tuple[Path, Path | None, dict[str, object]]] = {
        place.name: (place, None, {})
        for place in (sorted(folder.iterdir()) if folder.is_dir() else ())
        if (place / FILE).is_file()
    }
    for text in new or []:
        name, _, images = text.partition("=")
        source = Path(images) if images else None
        if source is not None and not source.is_dir():
            raise ValueError(f"{images!r} is not a folder of images")
        projects[name] = (folder / name, source, {})
    if (label_studio is None) != (label_studio_token_file is None):
        raise ValueError("--label-studio and --label-studio-token-file belong together; give both")
    studio = None
    if label_studio is not None and label_studio_token_file is not None:
        from coldstream.serve.label_studio.client import LabelStudio
        from coldstream.serve.label_studio.transport import Server, read_token

        studio = LabelStudio(Server(label_studio, read_token(label_studio_token_file)))
    if not projects:
        raise ValueError(f"there is no project in {str(folder)!r}; begin one with --new NAME")
    _run(projects, host, port, token, False, threads, studio)


@journal_app.command(name="verify")
def journal_verify(
    folder: Annotated[Path, typer.Argument(help="The folder of a project.")],
) -> None:
    """Check every event of a project's journal and its checksum."""
    from coldstream.serve.journal import FILE, verify

    say(f"{folder / FILE}: {verify(folder / FILE):,} events, all whole")


def _run(
    wanted: dict[str, tuple[Path, Path | None, dict[str, object]]],
    host: str,
    port: int,
    token: str | None,
    browser: bool,
    threads: int,
    studio: LabelStudio | None = None,
) -> None:
    from coldstream.serve.server import check_address, close_all, listen, serve

    check_address(host, token)
    listener = listen(host, port)
    projects: dict[str, Project] = {}
    try:
        _open(projects, wanted, threads)
    except BaseException:
        listener.close()
        close_all([*projects.values()])
        raise
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}/"

    def ready() -> None:
        say(f"label at {address}{'' if token is None else f'?token={token}'}   (Ctrl-C stops)")
        if browser:
            import webbrowser

            webbrowser.open(address if token is None else f"{address}?token={token}")

    serve(projects, listener, token, ready, studio)


def _open(
    projects: dict[str, Project], wanted: dict[str, tuple[Path, Path | None, dict[str, object]]], threads: int
) -> None:
    import torch

    from coldstream.serve.project import Project

    torch.set_num_threads(threads)
    for name, (place, source, settings) in wanted.items():
        project = projects[name] = Project(place, name, source, **settings)
        count = project.scan(lambda done: say(f"  {done:,} images found"))
        say(f"{name}: {count:,} images, {project.records.labelled:,} labelled, in {place}")
        if not count:
            complain(f"{name}: there are no images yet; add some on the page or through the API")


def _name(text: str) -> str:
    """Return a project's name for a folder's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64] or "images"
