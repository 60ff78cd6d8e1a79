"""A run that is kept on another file system: s3://, gs://, abfs://, hdfs://, or one that the user gives (pyarrow.fs, fsspec).

The run itself is on this machine, as any run: journal, logs, checkpoints. A thread of the driver brings what is to outlive the
machine to the other side, behind the training: each checkpoint when it is committed, the journal after it, logs at the end. There a
checkpoint is whole, or not there for who reads it: its list of files is written last and removed first. A run that is resumed
where its directory is not, or is behind, is fetched from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator, Mapping, Sequence

from . import defaults, manifest
from . import filesystem as filesystems
from . import there as _there
from .paths import JOURNAL
from .screen import harmless

STATE = ".trainyard-remote.json"  # who wrote last, on both sides
TRIES = 8
PAUSE_S = 0.5  # after the first failure; it doubles
PAUSE_MOST_S = 30.0
AT_A_TIME = 4  # files on their way
_CHUNK = 8 << 20

# A consistent copy of a journal that is being written, made by a process of its own: to open and close a file that this process
# has open elsewhere is no small thing. Its output is the list of the checkpoints that are kept.
_COPY = """
import json, sqlite3, sys
source = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True, timeout=30)
target = sqlite3.connect(sys.argv[2])
with target:
    source.backup(target)
target.execute("pragma journal_mode=delete")
print(json.dumps([name for name, in target.execute("select name from checkpoints order by number")]))
target.close()
"""


class UploadFailed(RuntimeError):
    """What could not be brought to the other side, and where it lies here."""


def find(path: Any, filesystem: Any) -> tuple[str, Any] | None:
    """Base directory and file system of a storage path on another file system; None for one of this machine."""
    base, found = filesystems.find(path, filesystem, "`RunConfig.storage_path`")
    return None if found is None else (base.rstrip("/"), found)


class Remote:
    """The other side of one run: the directory `base`/NAME on `filesystem`."""

    def __init__(self, base: str, filesystem: Any, warn: Callable[[str], None]):
        self.base = base
        self.filesystem = filesystem
        self.path = ""
        self._warn = warn
        self._local = ""
        self._state: dict[str, Any] = {}
        self._jobs: queue.Queue[tuple[str, str] | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._failed: list[str] = []
        self._given_up = False
        self._catches_up = False

    @property
    def there(self) -> _there.There:
        return _there.There(self.path, self.filesystem)

    def sent(self) -> tuple[str, bytes] | None:
        """What workers are told of it."""
        return _there.sent(self.base, self.filesystem)

    # -- before the run

    def prepare(self, name: str | None, storage: str, resume: bool) -> None:
        """Tries that the place can be written, and has the run of this name here if it is to go on. OSError, FileExistsError."""
        with self._told("cannot be written"):
            probe = f"{self.base}/.trainyard-{uuid.uuid4().hex}"
            self.filesystem.create_dir(self.base, recursive=True)
            filesystems.write(self.filesystem, probe, b"")
            self.filesystem.delete_file(probe)
            there = name is not None and self._read_state(f"{self.base}/{name}")
        if name is None:
            return
        if not there:
            self._look_here(os.path.join(storage, name))
            return
        if not resume:
            raise FileExistsError(
                f"the run {self.base}/{name} exists already: resume=True beside name={name!r} goes on with it, and another name "
                "begins a new one"
            )
        self._fetch(name, os.path.join(storage, name), there)

    def _look_here(self, local: str) -> None:
        """Nothing is there: the run of another place has the name here, or one that was there and is no more, where no program asks
        to go on with it (as in Ray). One that has never been anywhere is brought there."""
        here = _read_file(os.path.join(local, STATE))
        if here is None:
            return
        if here.get("place") != self._place() or (here.get("count") and defaults.policy.resume):
            self._set_aside(local)

    def _place(self) -> str:
        return f"{filesystems.name(self.filesystem)}:{self.base}"

    def _set_aside(self, local: str) -> None:
        """The directory gets another name. FileExistsError where its run goes on."""
        if _is_driven(local):
            raise FileExistsError(f"the run in {local}, which has another state, goes on: choose another name, or wait for its end")
        aside = f"{local}.before-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
        os.rename(local, aside)
        self._warn(f"{local} is not what is to be gone on with: it is {os.path.basename(aside)} now")

    def _fetch(self, name: str, local: str, there: Mapping[str, Any]) -> None:
        """The run's directory here, unless what is here is what was brought there last, or newer."""
        here = _read_file(os.path.join(local, STATE))
        if here is not None and (here.get("writer"), here.get("count", 0) >= there.get("count", 0)) == (there.get("writer"), True):
            return
        if os.path.exists(local):
            self._set_aside(local)
        source = f"{self.base}/{name}"
        os.makedirs(os.path.dirname(local), exist_ok=True)
        building = tempfile.mkdtemp(prefix=".fetch-", dir=os.path.dirname(local))
        try:
            with self._told("cannot be read"):
                self._fetch_file(f"{source}/{JOURNAL}", os.path.join(building, JOURNAL))
                for checkpoint in there.get("checkpoints", [])[-1:]:
                    self._fetch_checkpoint(f"{source}/{checkpoint}", os.path.join(building, checkpoint))
            _write_file(os.path.join(building, STATE), there)
            os.chmod(building, 0o755)
            os.rename(building, local)
        except BaseException:
            import shutil

            shutil.rmtree(building, ignore_errors=True)
            raise

    def _fetch_checkpoint(self, source: str, target: str) -> None:
        from pyarrow.fs import FileSelector, FileType

        os.makedirs(target)
        for info in self.filesystem.get_file_info(FileSelector(source, recursive=True)):
            place = filesystems.place_of(info.path, source, target)
            if info.type == FileType.Directory:
                os.makedirs(place, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                self._fetch_file(info.path, place)
        beside = filesystems.read(self.filesystem, manifest.beside_name(source))
        if beside is not None:
            _write_file(manifest.beside_name(target), manifest.moved(json.loads(beside), target))
        why = manifest.damage(target)
        if why is not None:
            raise OSError(f"{source}: {why}")

    def _fetch_file(self, source: str, target: str) -> None:
        with self.filesystem.open_input_stream(source) as there, open(target, "wb") as here:
            while data := there.read(_CHUNK):
                here.write(data)
            here.flush()
            os.fsync(here.fileno())

    # -- while it goes on

    def begin(self, name: str, local: str) -> None:
        """The run of this name is in directory `local`; from now on there is a thread."""
        self.path = f"{self.base}/{name}"
        self._local = local
        state = _read_file(os.path.join(local, STATE)) or {}
        self._state = {
            "writer": f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
            "count": int(state.get("count", 0)),
            "checkpoints": list(state.get("checkpoints", [])),
            "place": self._place(),
        }
        _write_file(os.path.join(local, STATE), {**state, "place": self._place()})
        self._catches_up = True  # with what a driver that was killed left here
        self._thread = threading.Thread(target=self._work, name="trainyard-remote", daemon=True)
        self._thread.start()
        self._jobs.put(("journal", ""))

    def committed(self, path: str) -> None:
        """A checkpoint is in its place. One that a user put elsewhere stays there."""
        if os.path.dirname(path) == self._local:
            self._jobs.put(("checkpoint", os.path.basename(path)))

    def finish(self) -> None:
        """Waits until all is on the other side. UploadFailed names what is not."""
        if self._thread is None:
            return
        self._jobs.put(("end", ""))
        self._jobs.put(None)
        while self._thread.is_alive():
            self._thread.join(0.2)  # Ctrl-C is heard between two of these
        if self._failed:
            raise UploadFailed(
                f"not on {self.path}: {'; '.join(self._failed)}. It lies in {self._local}: fit again with resume=True on this "
                "machine brings it there"
            )

    def give_up(self) -> None:
        """Nothing more is brought, and nothing waited for."""
        self._given_up = True

    # -- the thread

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            kind, name = job
            if not self._given_up:
                self._try(kind, name)

    def _try(self, kind: str, name: str) -> None:
        what = name if kind == "checkpoint" else "the journal" if kind == "journal" else "the end of the run"
        pause = PAUSE_S
        for attempt in range(1, TRIES + 1):
            try:
                getattr(self, f"_do_{kind}")(name)
                return
            except Exception as error:
                why = _reason(error)
                if attempt == TRIES or _is_final(error):
                    self._failed.append(f"{what} ({why})")
                    self._warn(f"{what} could not be brought to {self.path}: {why}")
                    return
                if attempt == 1:
                    self._warn(f"{what} could not be brought to {self.path} yet: {why}; it is tried again")
            end = time.monotonic() + pause
            while time.monotonic() < end and not self._given_up:
                time.sleep(0.05)
            if self._given_up:
                return
            pause = min(pause * 2, PAUSE_MOST_S)

    def _do_checkpoint(self, name: str) -> None:
        """All files, then their list; the journal, which tells of it, behind that. What is no longer kept goes there too, however
        far it had come."""
        source = os.path.join(self._local, name)
        try:
            self._send_checkpoint(name, source)
        except Exception:
            if os.path.isdir(source):
                raise
        if not os.path.isdir(source):
            self._remove(name)
            return
        self._state["checkpoints"] = [*(one for one in self._state["checkpoints"] if one != name), name]
        self._do_journal("")

    def _send_checkpoint(self, name: str, source: str) -> None:
        target = f"{self.path}/{name}"
        if name in self._state["checkpoints"]:  # reported again: until all of it is there it is none
            self._drop_list(target)
        is_there = _there.noted(source) == name  # with what ranks brought there themselves
        listed = manifest.place(source)
        metadata = os.path.join(source, manifest.INSIDE)
        self._send_tree(source, target, but=(manifest.INSIDE, _there.NOTE) if is_there else (manifest.INSIDE,))
        if is_there:
            self._write_list(target, listed)
        elif os.path.exists(listed):
            self._send_file(listed, f"{self.path}/{os.path.relpath(listed, self._local)}")
        else:  # the program put its files there itself
            filesystems.write(self.filesystem, manifest.beside_name(target), json.dumps(manifest.listed(source)).encode())
        if listed != metadata and os.path.exists(metadata):
            self._send_file(metadata, f"{target}/{manifest.INSIDE}")

    def _write_list(self, target: str, listed: str) -> None:
        """Of the files that are there, with what the list here says of the run. What the user says of the checkpoint is none of
        them."""
        from pyarrow.fs import FileSelector, FileType

        found = self.filesystem.get_file_info(FileSelector(target, recursive=True))
        sizes = {os.path.relpath(one.path, target): one.size for one in found if one.type == FileType.File}
        sizes.pop(manifest.INSIDE, None)
        if not sizes:
            raise FileNotFoundError(f"nothing was put into {target}")
        files = [{"path": path, "size": size} for path, size in sizes.items()]
        with open(listed, encoding="utf-8") as file:
            ours = json.load(file)["trainyard"]
        text = json.dumps({"trainyard": {**ours, "files": files}})
        filesystems.write(self.filesystem, manifest.beside_name(target), text.encode())

    def _drop_list(self, target: str) -> None:
        for place in self._lists(target):
            self.filesystem.delete_file(place)

    def _lists(self, target: str) -> Iterator[str]:
        """Of the two places where the list of a checkpoint's files may be, those that hold one: what is inside may be the user's,
        and is read for that."""
        from pyarrow.fs import FileType

        beside, inside = manifest.beside_name(target), f"{target}/{manifest.INSIDE}"
        if self.filesystem.get_file_info(beside).type != FileType.NotFound:
            yield beside
        data = filesystems.read(self.filesystem, inside)
        if data is not None and manifest.is_list(data):
            yield inside

    def _remove(self, name: str) -> None:
        from pyarrow.fs import FileType

        target = f"{self.path}/{name}"
        self._drop_list(target)
        if self.filesystem.get_file_info(target).type != FileType.NotFound:
            self.filesystem.delete_dir(target)

    def _do_journal(self, _: str) -> None:
        fd, copy = tempfile.mkstemp(prefix="trainyard-journal-")
        os.close(fd)
        try:
            source = os.path.join(self._local, JOURNAL)
            done = subprocess.run([sys.executable, "-I", "-S", "-c", _COPY, _quoted(source), copy], capture_output=True, text=True)
            if done.returncode != 0:
                raise OSError(f"{source} cannot be copied: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
            self.filesystem.create_dir(self.path, recursive=True)
            self._send_file(copy, f"{self.path}/{JOURNAL}")
        finally:
            os.unlink(copy)
        kept = [name.removeprefix("./") for name in json.loads(done.stdout)]
        stays = set(kept)
        for name in self._state["checkpoints"]:
            if name not in stays:
                self._remove(name)
        self._state["checkpoints"] = [name for name in self._state["checkpoints"] if name in stays]
        self._state["count"] += 1
        self._failed = [what for what in self._failed if not what.startswith("the journal")]  # of an earlier copy
        filesystems.write(self.filesystem, f"{self.path}/{STATE}", json.dumps(self._state).encode())
        _write_file(os.path.join(self._local, STATE), self._state)
        if not self._catches_up:
            return
        self._catches_up = False
        try:
            for name in kept:
                is_here = os.path.basename(name) == name and os.path.isdir(os.path.join(self._local, name))
                if is_here and name not in self._state["checkpoints"]:
                    self._do_checkpoint(name)
        except BaseException:
            self._catches_up = True
            raise

    def _do_end(self, _: str) -> None:
        logs = os.path.join(self._local, "logs")
        if os.path.isdir(logs):
            self._send_tree(logs, f"{self.path}/logs")
        self._do_journal("")

    def _send_tree(self, source: str, target: str, but: Sequence[str] = ()) -> None:
        """All files, several at a time; without those of the names `but` at the top."""
        self.filesystem.create_dir(target, recursive=True)
        files: list[tuple[str, str]] = []
        for folder, folders, names in os.walk(source):
            inside = os.path.relpath(folder, source)
            to = target if inside == "." else f"{target}/{inside}"
            for name in folders:
                self.filesystem.create_dir(f"{to}/{name}", recursive=True)
            paths = [(os.path.join(folder, name), f"{to}/{name}") for name in names if to != target or name not in but]
            files += [(here, there) for here, there in paths if os.path.isfile(here)]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for _ in pool.map(self._send_file, *zip(*files)) if files else ():
                pass

    def _send_file(self, source: str, target: str) -> None:
        """Seen there when its last byte is, on a file system whose files appear when they are closed (S3, GCS); the list of a
        checkpoint's files makes up for others."""
        with open(source, "rb", buffering=0) as here, self.filesystem.open_output_stream(target) as there:
            while data := here.read(_CHUNK):
                if self._given_up:
                    raise InterruptedError("given up")
                there.write(data)

    # -- afterwards

    def checkpoint(self, name: str) -> Any:
        """The checkpoint of this name on the other side; None where it is not there as a whole."""
        if not any(self._lists(f"{self.path}/{name}")):
            return None
        note = filesystems.read(self.filesystem, f"{self.path}/{name}/{_there.NOTE}")
        return self.there.checkpoint((note and _there.name_in(note)) or name)

    def _read_state(self, path: str) -> dict[str, Any]:
        data = filesystems.read(self.filesystem, f"{path}/{STATE}")
        return {} if data is None else _checked(json.loads(data), f"{path}/{STATE}")

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise
        except Exception as error:
            raise OSError(f"the storage path {self.base} {what}: {_reason(error)}") from error


def fetch_result(path: str, filesystem: Any, place: str) -> None:
    """The journal of the run in directory `path` there into the directory `place` here. FileNotFoundError where there is none."""
    data = filesystems.read(filesystem, f"{path}/{JOURNAL}")
    if data is None:
        raise FileNotFoundError(f"{path} holds no run, as {JOURNAL} doesn't exist in it")
    with open(os.path.join(place, JOURNAL), "wb") as file:
        file.write(data)


def _checked(state: Any, path: str) -> dict[str, Any]:
    """What whoever may write there has written. OSError for what is no state, or names what does not lie in the run."""
    names = state.get("checkpoints", []) if isinstance(state, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) and _is_name(name) for name in names):
        raise OSError(f"{path} is damaged: it must list the run's checkpoints")
    return dict(state)


def _is_driven(local: str) -> bool:
    """Whether somebody drives the run in this directory, as far as this user may see (src/controller/run_lock.h)."""
    try:
        with open(os.path.join(local, "run.lock"), "rb") as file:
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            return struct.unpack_from("h", fcntl.fcntl(file, fcntl.F_OFD_GETLK, lock))[0] != fcntl.F_UNLCK
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _is_name(text: str) -> bool:
    return text not in ("", ".", "..", JOURNAL, STATE, "logs") and not any(one in text for one in ("/", "\\", "\0"))


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return harmless(text if len(text) <= 400 else text[:400] + "..")


def _is_final(error: BaseException) -> bool:
    """What another try cannot mend."""
    text = str(error)
    return any(word in text for word in ("ACCESS_DENIED", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NO_SUCH_BUCKET"))


def _read_file(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _write_file(path: str, value: Mapping[str, Any]) -> None:
    """Whole or as it was."""
    temporary = f"{path}.{uuid.uuid4().hex[:8]}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(temporary, path)
