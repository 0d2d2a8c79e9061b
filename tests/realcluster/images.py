"""Writes the images that a real node runs, since it reaches no registry: `python -m tests.realcluster.images FOLDER`.

FOLDER/images.tar is an OCI layout with

- `registry.k8s.io/pause:3.10`, a sandbox;
- `registry.example/worker:1.4`, as of config/executor.Dockerfile: busybox, Python, and `actors` without dependencies;
- `registry.example/driver:1.4`, as of config/driver.Dockerfile: the same, and an environment `/venv` with executor-pods
  and more extras, for the tests.

The Dockerfiles say the variables, the folder, the user, the entrypoint and the program's name. The programs are from
docs/how-to/find-the-driver.md.

Their Python is the one that runs this module, so that a driver here and its Dask workers there have the same. Needs
gcc, busybox-static, ldd, pip and a package index. It takes 30 s, and 40 s more for the packages, and 700 MB.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.realcluster.dockerfile import Dockerfile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["DRIVER", "WORKER", "write"]

CHECKOUT: Final = Path(__file__).parents[2]
PAUSE: Final = "registry.k8s.io/pause:3.10"
WORKER: Final = "registry.example/worker:1.4"
DRIVER: Final = "registry.example/driver:1.4"
EXTRAS: Final = "cli,local,metrics,page,dask"

UNUSED: Final = frozenset(
    {"test", "tests", "idlelib", "turtledemo", "tkinter", "ensurepip", "site-packages", "dist-packages"}
)
"""Of the standard library: no program of a pod imports these."""
BASE: Final = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
"""Variables of the image that both begin from."""

USERS: Final = b"root:x:0:0:root:/root:/bin/sh\napp:x:10001:10001:app:/tmp:/bin/sh\n"
GROUPS: Final = b"root:x:0:\napp:x:10001:\n"
OCI: Final = "application/vnd.oci.image."


class Layer:
    """Files for an image. The first of a name stays."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._buffer = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the layer, in `blob`
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115 - the same

    def folder(self, name: str | Path, mode: int = 0o755) -> None:
        self._add(str(name), mode, tarfile.DIRTYPE)

    def link(self, name: str | Path, target: str | Path) -> None:
        self._add(str(name), 0o777, tarfile.SYMTYPE, link=str(target))

    def text(self, name: str, data: bytes) -> None:
        self._add(name, 0o644, tarfile.REGTYPE, data)

    def file(self, path: str | Path, name: str | Path | None = None, data: bytes | None = None) -> None:
        """Take a file of this machine; `data` instead of what it holds."""
        path = Path(path)
        if path.is_symlink() and data is None:
            self.link(name or path, path.readlink())
            return
        about = path.stat()
        content = path.read_bytes() if data is None else data
        # compiled modules name the time of their source
        self._add(str(name or path), about.st_mode & 0o755 | 0o444, tarfile.REGTYPE, content, changed=about.st_mtime)

    def tree(
        self,
        folder: Path,
        name: str | Path | None = None,
        skip: Iterable[str] = (),
        change: Callable[[Path], bytes | None] = lambda _: None,
    ) -> None:
        target = Path(name or folder)
        self.folder(target)
        for here, folders, files in os.walk(folder):
            folders[:] = sorted(set(folders) - set(skip))
            for each in (*sorted(files), *(each for each in folders if Path(here, each).is_symlink())):
                path = Path(here, each)
                self.file(path, target / path.relative_to(folder), change(path))

    def libraries(self, *files: str | Path) -> None:
        """Take what the dynamic linker loads for these files."""
        for line in subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout.splitlines():
            if found := re.match(r"\s+(?:\S+ => )?(/\S+) \(0x", line):
                self.file(Path(found[1]).resolve(), found[1])

    def blob(self) -> bytes:
        """The whole layer. Nothing can be added after that."""
        self._tar.close()
        with self._buffer:
            self._buffer.seek(0)
            return self._buffer.read()

    def _add(self, name: str, mode: int, kind: bytes, data: bytes = b"", *, link: str = "", changed: float = 0) -> None:
        name = name.strip("/")
        if name in self._names or name in {"", "."}:
            return
        self.folder(Path(name).parent)
        self._names.add(name)
        info = tarfile.TarInfo(name)
        info.mode, info.type, info.size, info.linkname, info.mtime = mode, kind, len(data), link, int(changed)
        self._tar.addfile(info, io.BytesIO(data))


class Layout:
    """Images that share layers, as one OCI layout."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._manifests: list[dict[str, Any]] = []

    def layer(self, layer: Layer) -> dict[str, Any]:
        return self._add(layer.blob(), "layer.v1.tar")

    def image(self, name: str, layers: list[dict[str, Any]], **config: Any) -> None:
        digests = [layer["digest"] for layer in layers]
        about = {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": digests},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}manifest.v1+json",
            "config": self._add(json.dumps(about).encode(), "config.v1+json"),
            "layers": layers,
        }
        names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
        self._manifests.append(self._add(json.dumps(manifest).encode(), "manifest.v1+json") | {"annotations": names})

    def write(self, path: Path) -> None:
        index = {"schemaVersion": 2, "manifests": self._manifests}
        files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode()}
        files |= {f"blobs/sha256/{digest}": data for digest, data in self._blobs.items()}
        with tarfile.open(path, "w") as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))

    def _add(self, data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        self._blobs[digest] = data
        return {"mediaType": OCI + kind, "digest": f"sha256:{digest}", "size": len(data)}


def write(folder: Path) -> Path:
    """Write the images; return their file."""
    folder.mkdir(parents=True, exist_ok=True)
    layout = Layout()
    layout.image(PAUSE, [layout.layer(_pause(folder))], Entrypoint=["/pause"], User="65535:65535")
    system = layout.layer(_system())
    worker, driver = Dockerfile.of("executor"), Dockerfile.of("driver")
    layout.image(WORKER, [system, layout.layer(_worker(worker))], **worker.config(BASE))
    layout.image(DRIVER, [system, layout.layer(_driver(driver, folder))], **driver.config(BASE))
    path = folder / "images.tar"
    layout.write(path)
    return path


def _pause(folder: Path) -> Layer:
    binary = folder / "pause"
    source = Path(__file__).with_name("pause.c")
    subprocess.run(["gcc", "-static", "-Os", "-s", "-o", binary, source], check=True)
    layer = Layer()
    layer.file(binary, "/pause")
    return layer


def _system() -> Layer:
    python = Path(sys.executable).resolve()
    stdlib = Path(sysconfig.get_path("stdlib"))
    layer = Layer()
    layer.folder("/tmp", 0o1777)
    layer.folder("/app")
    layer.file(Path("/bin/busybox").resolve(), "/bin/busybox")
    applets = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in applets:
        layer.link(f"/bin/{applet}", "busybox")
    layer.text("/etc/passwd", USERS)
    layer.text("/etc/group", GROUPS)
    layer.text("/etc/nsswitch.conf", b"hosts: files dns\n")
    layer.file(python)
    for name in ("python3", "python"):
        layer.link(f"/usr/bin/{name}", python)
    layer.tree(stdlib, skip=UNUSED)
    layer.libraries(python, *_shared_objects(stdlib, UNUSED))
    for library in Path(sys.base_prefix, "lib").glob("libpython*"):
        layer.file(library)
    for library in Path("/lib/x86_64-linux-gnu").glob("libnss_*.so*"):  # names of users and hosts
        layer.file(library.resolve(), library)
    return layer


def _worker(image: Dockerfile) -> Layer:
    layer = Layer()
    _add_program(layer, image)
    layer.tree(CHECKOUT / "actors", "/app/actors", skip={"__pycache__"})
    return layer


def _add_program(layer: Layer, image: Dockerfile) -> None:
    """Copy the first program of the page that has the name of the Dockerfile's."""
    page = (CHECKOUT / "docs/how-to/find-the-driver.md").read_text(encoding="utf-8")
    codes = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    code = next(code for code in codes if code.startswith(f"# {image.program()}"))
    layer.text(f"{image.last_stage()['WORKDIR']}/{image.program()}", code.encode())


def _driver(image: Dockerfile, folder: Path) -> Layer:
    venv = folder / "venv"
    if not (venv / "bin/executor-pods").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        source = folder / "source"  # the build of a package writes beside its sources
        unwanted = shutil.ignore_patterns(".*", "*.egg-info", "build", "tests", "docs")
        shutil.copytree(CHECKOUT, source, ignore=unwanted, dirs_exist_ok=True)
        subprocess.run([venv / "bin/pip", "install", "-q", f"{source}[{EXTRAS}]"], check=True)

    def moved(path: Path) -> bytes | None:
        """The environment stands at /venv there: the first lines of its programs say so."""
        if path.parent == venv / "bin" and not path.is_symlink():
            return path.read_bytes().replace(str(venv).encode(), b"/venv")
        return None

    layer = Layer()
    _add_program(layer, image)
    layer.tree(venv, "/venv", skip={"pip", "setuptools"}, change=moved)
    layer.libraries(*_shared_objects(venv))
    return layer


def _shared_objects(folder: Path, skip: frozenset[str] = frozenset()) -> list[Path]:
    return [path for path in folder.rglob("*.so*") if path.is_file() and not skip & set(path.parts)]


if __name__ == "__main__":
    print(write(Path(sys.argv[1]).resolve()))
