"""Files that are none, that do not end, or that are far more than they look: an error at once that names the file."""

from __future__ import annotations

import json
import os
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from actors.errors import SettingsError
from actors.kube import files
from actors.kube.auth.discovery import load
from actors.settings import Settings
from tests.unit.kube.scripted import SAFETY, write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SERVER = "https://one.example"
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 12)
)
MERGES = "m0: &m0 {k: v}\n" + "".join(
    f"m{level}: &m{level} {{<<: [{', '.join([f'*m{level - 1}'] * 10)}]}}\n" for level in range(1, 12)
)
LONG_TEXT = f"t: &t {'x' * 100_000}\nl: &l [{', '.join(['*t'] * 1000)}]\n"
BOMBS = {"aliases": LAUGHS, "merges": MERGES, "long texts": LONG_TEXT}


def no_file(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(files.LARGEST + 1)


def quickly(read: Callable[[], Any]) -> str:
    """How it is refused. A read that blocks is a failure."""
    said: list[BaseException | None] = []

    def run() -> None:
        try:
            read()
            said.append(None)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            said.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SAFETY)
    assert said, "it blocks"
    assert isinstance(said[0], SettingsError)
    return str(said[0])


def settings_file(path: Path) -> None:
    Settings.load(path)


def template(path: Path) -> None:
    Settings(executor={"pod_template": path})


def patch(path: Path) -> None:
    Settings(executor={"template_patch": path})


def named_by_user(key: str) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        beside = {"client-key" if key == "client-certificate" else "client-certificate": str(path)}
        user = {key: path.name, **(beside if key.startswith("client") else {})}
        load(write_kubeconfig(path.parent / "k", SERVER, user))

    return read


def authority(path: Path) -> None:
    load(write_kubeconfig(path.parent / "k", SERVER, {"token": "t"}, **{"certificate-authority": path.name}))


def account(file: str) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        for name in ("token", "ca.crt", "namespace"):
            (path.parent / name).write_text("x")
        (path.parent / file).unlink()
        path.rename(path.parent / file)
        load(environ={"KUBERNETES_SERVICE_HOST": "a", "KUBERNETES_SERVICE_PORT": "1", "HOME": "/"}, account=path.parent)

    return read


@pytest.mark.parametrize("make", [no_file, endless, huge])
@pytest.mark.parametrize(
    "read",
    [
        settings_file,
        template,
        patch,
        load,
        named_by_user("tokenFile"),
        named_by_user("client-certificate"),
        authority,
        account("token"),
        account("ca.crt"),
    ],
    ids=["settings", "template", "patch", "kubeconfig", "tokenFile", "certificate", "authority", "token", "ca.crt"],
)
def test_what_is_no_plain_file_is_refused_at_once_by_its_name(
    tmp_path: Path, make: Callable[[Path], None], read: Callable[[Path], None]
) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "odd"
    make(path)
    why = quickly(lambda: read(path))
    assert str(tmp_path / "folder") in why or re.match(r"executor\.(pod_template|template_patch) = ", why)
    assert ("has more than" if make is huge else "is no regular file") in why


def test_an_accounts_namespace_that_is_no_file_is_the_default_one(tmp_path: Path) -> None:
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    no_file(tmp_path / "namespace")
    environ = {"KUBERNETES_SERVICE_HOST": "a", "KUBERNETES_SERVICE_PORT": "1", "HOME": "/"}
    assert load(environ=environ, account=tmp_path).namespace == "default"


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("read", [template, load], ids=["template", "kubeconfig"])
def test_yaml_that_expands_to_more_than_memory_is_refused_at_once(
    tmp_path: Path, bomb: str, read: Callable[[Path], None]
) -> None:
    path = tmp_path / "bomb.yaml"
    last = bomb.splitlines()[-1].partition(":")[0]
    whole = f"{bomb}clusters: []\ncontexts: [{{name: c, context: {{x: *{last}}}}}]\nusers: []\ncurrent-context: c\n"
    path.write_text(whole)
    why = quickly(lambda: read(path))
    assert str(path) in why or why.startswith("executor.pod_template = ")
    assert "too large" in why or "too many" in why


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\n---\n",
        "---\n---\na: 1\n",
        "# Source: chart\n---\na: 1\n...\n",
        "a: 1\n---\n# the end\n---\n",
        '{\n\t"a":\t1\n}',
        "{a: 1}",
        "\ufeffa: 1\n",
    ],
)
def test_separators_around_one_document_and_tabs_in_json_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    assert files.read_yaml(tmp_path / "f") == {"a": 1}


@pytest.mark.parametrize("text", ["a: 1\n---\nb: 2\n", "a: 1\n---\n---\n[]\n"])
def test_a_second_document_is_refused_where_it_begins(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(yaml.YAMLError, match="but found another document") as refused:
        files.read_yaml(tmp_path / "f")
    assert isinstance(refused.value, yaml.MarkedYAMLError)
    assert refused.value.problem_mark is not None


@pytest.mark.parametrize("text", ["", "---\n---\n", "# nothing\n"])
def test_a_file_without_a_document_has_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    assert files.read_yaml(tmp_path / "f") is None


def test_anchors_and_merges_of_ordinary_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("x: &x {a: b}\nspec:\n  one: {<<: *x, c: d}\n  two: {<<: [*x, {e: f}]}\n  three: [*x, *x]\n")
    assert files.read_yaml(path) == yaml.safe_load(path.read_text())
    json.dumps(files.read_yaml(path))


@pytest.mark.parametrize("key", ["k", "alpha"])
def test_the_first_of_merged_mappings_counts_and_a_mappings_own_key_before_all(tmp_path: Path, key: str) -> None:
    path = tmp_path / "pod.yaml"
    one, two = f"{{{key}: 1}}", f"{{{key}: 2}}"
    path.write_text(
        f"list: {{<<: [{one}, {two}]}}\nown: {{<<: {one}, {key}: 3}}\nnested: {{<<: [{{<<: {two}}}, {one}]}}\n"
    )
    assert files.read_yaml(path) == {"list": {key: 1}, "own": {key: 3}, "nested": {key: 2}}


def test_a_mapping_that_merges_itself_is_read_and_one_that_merges_a_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("a: &a {<<: *a, k: v}\n")
    assert files.read_yaml(path) == {"a": {"k": "v"}}
    for text in ("a: {<<: text}\n", "a: {<<: [{}, text]}\n"):
        path.write_text(text)
        with pytest.raises(yaml.YAMLError, match="merges what is no mapping"):
            files.read_yaml(path)


def test_a_mapping_of_many_keys_that_merges_nothing_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("".join(f"k{number}: v\n" for number in range(files.COST * files.MOST_MERGED + 1)))
    assert len(files.read_yaml(path)) == files.COST * files.MOST_MERGED + 1
