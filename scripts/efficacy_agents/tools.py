"""The four tools that peers are given: the same ones, with the same words."""

from pathlib import Path


def _within(path):
    root = Path.cwd().resolve()
    file = (root / path).resolve()
    if not file.is_relative_to(root):
        raise ValueError(f"{path} is outside of the folder")
    return file


def list_files() -> str:
    """Lists all files of the folder, one path a line."""
    root = Path.cwd()
    files = sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())
    return "\n".join(file for file in files if not file.startswith(".")) or "There are no files."


def read_file(path: str) -> str:
    """Reads a text file.

    Args:
        path: The file, relative to the folder.
    """
    return _within(path).read_text()


def write_file(path: str, content: str) -> str:
    """Writes a text file; one that is there is replaced.

    Args:
        path: The file, relative to the folder.
        content: The whole text.
    """
    file = _within(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return f"{path} is written."


def edit_file(path: str, old_text: str, new_text: str) -> str:
    """Replaces a passage of a text file by another.

    Args:
        path: The file, relative to the folder.
        old_text: The passage as it stands in the file, once.
        new_text: What stands there afterwards.
    """
    file = _within(path)
    text = file.read_text()
    if text.count(old_text) != 1:
        raise ValueError(f"old_text stands in {path} {text.count(old_text)} times and must stand there once")
    file.write_text(text.replace(old_text, new_text))
    return f"{path} is changed."


TOOLS = [list_files, read_file, write_file, edit_file]
