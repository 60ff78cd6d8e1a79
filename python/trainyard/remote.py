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
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from typing import Any, Callable, Iterator, Mapping, Sequence

from . import defaults, manifest
from . import filesystem as filesystems
from . import there as _there
from .paths import JOURNAL
from .screen import harmless

STATE = ".trainyard-remote.json"  # who wrote last, and what became of the checkpoints, on both sides
_KINDS = ("checkpoints", "begun", "gone")  # whole there; to some part; removed
_WHAT = {"journal": "the journal", "end": "the end of the run"}
TRIES = 8
PAUSE_S = 0.5  # after the first failure; it doubles
PAUSE_MOST_S = 30.0
SLOW_S = 10.0  # without an answer before the run begins, until that is told
_CHUNK = 8 << 20

# A consistent copy of a journal that is being written, made by a process of its own: to open and close a file that this process
# has open elsewhere is no small thing.
_COPY = """
import sqlite3, sys
source = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True, timeout=30)
target = sqlite3.connect(sys.argv[2])
with target:
    source.backup(target)
target.execute("pragma journal_mode=delete")
target.close()
"""


class UploadFailed(RuntimeError):
    """What could not be brought to the other side, and where it lies here."""


class _Refused(Exception):
    """What another try does not mend."""


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
        self._failed: dict[str, str] = {}  # what, and why
        self._seen: str | None = None  # who wrote there last before this
        self._given_up = False
        self._catches_up = False
        self._is_down = False  # the other side, as far as the last try tells

    @property
    def there(self) -> _there.There:
        return _there.There(self.path, lambda: self.filesystem)

    def sent(self) -> tuple[str, bytes] | None:
        """What workers are told of it."""
        return _there.sent(self.base, self.filesystem)

    # -- before the run

    def prepare(self, name: str | None, storage: str, resume: bool) -> None:
        """Tries that the place can be written, and has the run of this name here if it is to go on. OSError, FileExistsError."""
        with self._told("cannot be written"):
            there = self._awaited(lambda: self._probe(name))
        if name is None:
            return
        self._seen = there.get("writer")
        if not there:
            self._look_here(os.path.join(storage, name))
            return
        if not resume:
            raise FileExistsError(
                f"the run {self.base}/{name} exists already: resume=True beside name={name!r} goes on with it, and another name "
                "begins a new one"
            )
        self._fetch(name, os.path.join(storage, name), there)

    def _probe(self, name: str | None) -> dict[str, Any]:
        """The state of the run of this name there."""
        probe = f"{self.base}/.trainyard-{uuid.uuid4().hex}"
        self.filesystem.create_dir(self.base, recursive=True)
        filesystems.write(self.filesystem, probe, b"")
        self.filesystem.delete_file(probe)
        return {} if name is None else self._read_state(f"{self.base}/{name}")

    def _awaited(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `work` gives. A file system may try to reach its server for a quarter of an hour: in a thread, so that Ctrl-C is
        heard, and the user is told."""
        from concurrent.futures import Future, wait

        done = Future[dict[str, Any]]()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=run, name="trainyard-remote-probe", daemon=True).start()
        end, is_told = time.monotonic() + SLOW_S, False
        while not wait([done], 0.1).done:
            if not is_told and time.monotonic() >= end:
                is_told = True
                self._warn(f"the storage path {self.base} gives no answer yet: it is waited for")
        return done.result()

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
        is_ours = here is not None and self._seen in (here.get("writer"), here.get("after"))
        if here is not None and is_ours and here.get("count", 0) >= there.get("count", 0):
            return
        if os.path.exists(local):
            self._set_aside(local)
        source = f"{self.base}/{name}"
        os.makedirs(os.path.dirname(local), exist_ok=True)
        building = tempfile.mkdtemp(prefix=".fetch-", dir=os.path.dirname(local))
        try:
            with self._told("cannot be read"):
                self._fetch_file(f"{source}/{JOURNAL}", os.path.join(building, JOURNAL))
                kept = _kept(os.path.join(building, JOURNAL))
                any(self._fetch_checkpoint(f"{source}/{one}", f"{building}/{one}") for one in reversed(kept))
                for one in {*there.get("checkpoints", []), *there.get("begun", [])}.difference(kept):
                    self._delete(f"{source}/{one}")  # before ranks may bring another one of its name
            left = {kind: [one for one in there.get(kind, []) if one in kept] for kind in ("checkpoints", "begun")}
            _write_file(os.path.join(building, STATE), {**there, **left})
            os.chmod(building, 0o755)
            os.rename(building, local)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise

    def _fetch_checkpoint(self, source: str, target: str) -> bool:
        """Whether it is there as a whole. For one that the program brought there a directory with a note stands here, too."""
        found = self._list_of(source)
        if found is None:
            return False
        is_beside, listed = found
        os.makedirs(target)
        if listed["trainyard"].get("brought"):
            _there.note(target, os.path.basename(target))
            listed = {"trainyard": {**listed["trainyard"], **manifest.listed(target)["trainyard"]}}
        else:
            self._fetch_tree(source, target)
            _make_links(listed, target)
        if is_beside:
            _write_file(manifest.beside_name(target), manifest.moved(listed, target))
        why = manifest.damage(target)
        if why is not None:
            raise OSError(f"{source}: {why}")
        return True

    def _fetch_tree(self, source: str, target: str) -> None:
        from pyarrow.fs import FileSelector, FileType

        for info in self.filesystem.get_file_info(FileSelector(source, recursive=True)):
            place = filesystems.place_of(info.path, source, target)
            if info.type == FileType.Directory:
                os.makedirs(place, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                self._fetch_file(info.path, place)

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
        before = (_read_file(os.path.join(local, STATE)) or {}) if self._seen is not None else {}  # there nothing is any more
        self._state = {
            "writer": f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
            "after": self._seen,
            "place": self._place(),
            "count": before.get("count", 0),
            **{kind: before.get(kind, []) for kind in _KINDS},
        }
        _write_file(os.path.join(local, STATE), self._state)
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
            failed = "; ".join(f"{what} ({why})" for what, why in self._failed.items())
            raise UploadFailed(
                f"not on {self.path}: {failed}. It lies in {self._local}: fit again with resume=True on this "
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
        """As often as it takes, within limits; once, where what came before was not got through. What was given up then is brought
        when the other side is back."""
        what = _WHAT.get(kind, name)
        pause, was_down = PAUSE_S, self._is_down
        tries = 1 if was_down else TRIES
        for attempt in range(1, tries + 1):
            try:
                self._claim()
                getattr(self, f"_do_{kind}")(name)
                self._failed.pop(what, None)  # of an earlier try
                self._is_down = False
                if was_down:
                    self._catches_up = True
                    self._try("journal", "")
                return
            except Exception as error:
                why = _reason(error)
                if attempt == tries or _is_final(error):
                    self._is_down = True
                    self._failed[what] = why
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

    def _claim(self) -> None:
        """Refuses to write where another driver does by now, which has gone on with the run."""
        writer = self._read_state(self.path).get("writer")
        if writer not in (None, self._seen, self._state["writer"]):
            raise _Refused(f"{writer} has gone on with this run: no two may drive one")
        self.filesystem.create_dir(self.path, recursive=True)

    def _do_checkpoint(self, name: str) -> None:
        """All files, then their list; the journal, which tells of it, behind that. What is no longer kept goes there too, however
        far it had come."""
        source = os.path.join(self._local, name)
        try:
            self._mark(name, "begun")
            self._write_state()
            self._send_checkpoint(name, source)
        except Exception:
            if os.path.isdir(source):
                raise
        if not os.path.isdir(source):
            self._remove(name)
            return
        self._mark(name, "checkpoints")
        self._do_journal("")

    def _mark(self, name: str, kind: str) -> None:
        """Notes what has become of a checkpoint there."""
        for one in {kind, "begun", "checkpoints"}:
            self._state[one] = [other for other in self._state[one] if other != name] + ([name] if one == kind else [])

    def _write_state(self) -> None:
        """Here first: who drives the run from here again knows by it that this is no older state than that there."""
        _write_file(os.path.join(self._local, STATE), self._state)
        with filesystems.replaced(self.filesystem, f"{self.path}/{STATE}") as place:
            filesystems.write(self.filesystem, place, json.dumps(self._state).encode())

    def _send_checkpoint(self, name: str, source: str) -> None:
        target = f"{self.path}/{name}"
        self._drop_list(target)  # where it is reported again: until all of it is there it is none
        is_brought = _there.noted(source) == name  # by ranks
        if is_brought and name in self._state["gone"]:
            raise _Refused("a checkpoint of this name was removed, perhaps while this one was brought: give each a name of its own")
        listed = manifest.place(source)
        metadata = os.path.join(source, manifest.INSIDE)
        self._send(source, target, but=(manifest.INSIDE, _there.NOTE) if is_brought else (manifest.INSIDE,))
        if is_brought:
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
        sizes = {filesystems.inside(one.path, target): one.size for one in found if one.type == FileType.File}
        sizes.pop(manifest.INSIDE, None)
        if not sizes:
            raise FileNotFoundError(f"nothing was put into {target}")
        files = [{"path": path, "size": size} for path, size in sizes.items()]
        with open(listed, encoding="utf-8") as file:
            ours = json.load(file)["trainyard"]
        text = json.dumps({"trainyard": {**ours, "files": files, "brought": True}})
        filesystems.write(self.filesystem, manifest.beside_name(target), text.encode())

    def _list_of(self, target: str) -> tuple[bool, dict[str, Any]] | None:
        """Whether the list of a checkpoint's files is beside it, and what it says; None where there is none, or a part of one. What
        is inside may be the user's own."""
        for is_beside, place in ((True, manifest.beside_name(target)), (False, f"{target}/{manifest.INSIDE}")):
            data = filesystems.read(self.filesystem, place)
            if data is not None and manifest.is_list(data):
                return is_beside, json.loads(data)
        return None

    def _drop_list(self, target: str) -> None:
        beside, inside = manifest.beside_name(target), f"{target}/{manifest.INSIDE}"
        if filesystems.read(self.filesystem, beside) is not None:
            self.filesystem.delete_file(beside)
        if manifest.is_list(filesystems.read(self.filesystem, inside) or b""):
            self.filesystem.delete_file(inside)

    def _remove(self, name: str) -> None:
        """Ranks may bring another one of this name by now, of which this takes files: `gone` tells."""
        self._delete(f"{self.path}/{name}")
        self._mark(name, "gone")

    def _delete(self, target: str) -> None:
        from pyarrow.fs import FileType

        self._drop_list(target)
        if self.filesystem.get_file_info(target).type != FileType.NotFound:
            self.filesystem.delete_dir(target)

    def _do_journal(self, _: str) -> None:
        fd, copy = tempfile.mkstemp(prefix="trainyard-journal-")
        os.close(fd)
        try:
            _copy_journal(os.path.join(self._local, JOURNAL), copy)
            kept = _kept(copy)
            with filesystems.replaced(self.filesystem, f"{self.path}/{JOURNAL}") as place:
                filesystems.send_file(self.filesystem, copy, place)  # to its end: what is given up would be there in part
        finally:
            os.unlink(copy)
        for name in [*self._state["checkpoints"], *self._state["begun"]]:
            if name not in kept:
                self._remove(name)
        self._failed = {what: why for what, why in self._failed.items() if what in kept or what == _WHAT["end"]}
        self._state["count"] += 1
        self._write_state()
        if self._catches_up:
            self._catches_up = False
            for name in kept:
                if name not in self._state["checkpoints"] and os.path.isdir(os.path.join(self._local, name)):
                    self._try("checkpoint", name)

    def _do_end(self, _: str) -> None:
        logs = os.path.join(self._local, "logs")
        if os.path.isdir(logs):
            self._send(logs, f"{self.path}/logs")
        self._do_journal("")

    def _send(self, source: str, target: str, but: Sequence[str] = ()) -> None:
        filesystems.send(self.filesystem, source, target, but, lambda: self._given_up)

    def _send_file(self, source: str, target: str) -> None:
        filesystems.send_file(self.filesystem, source, target, lambda: self._given_up)

    # -- afterwards

    def checkpoint(self, name: str) -> Any:
        """The checkpoint of this name on the other side; None where it is not there as a whole."""
        return None if self._list_of(f"{self.path}/{name}") is None else self.there.checkpoint(name)

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
    names = [state.get(kind, []) for kind in _KINDS] if isinstance(state, dict) else [None]
    if not all(isinstance(one, list) and all(isinstance(name, str) and _is_name(name) for name in one) for one in names):
        raise OSError(f"{path} is damaged: it must list the run's checkpoints")
    if not isinstance(state.get("count", 0), int):
        raise OSError(f"{path} is damaged: its count must be a number")
    return dict(state)


def _copy_journal(source: str, target: str) -> None:
    done = subprocess.run([sys.executable, "-I", "-S", "-c", _COPY, _quoted(source), target], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{source} cannot be copied: {(done.stderr.strip().splitlines() or ['?'])[-1]}")


def _kept(journal: str) -> list[str]:
    """The kept checkpoints in the run's own directory, oldest first, of a journal to which nobody writes."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(f"file:{_quoted(journal)}?mode=ro&immutable=1", uri=True)) as opened:
        names = [name.removeprefix("./") for (name,) in opened.execute("select name from checkpoints order by number")]
    return [name for name in names if _is_name(name)]


def _make_links(listed: dict[str, Any], directory: str) -> None:
    """A link is sent as what it leads to. OSError for one that leads out, or lies there."""
    for entry in listed["trainyard"]["files"]:
        if entry.get("link") is None:
            continue
        path = filesystems.place_of(os.path.join(directory, entry["path"]), directory, directory)
        filesystems.inside(os.path.join(os.path.dirname(path), entry["link"]), directory)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.unlink(path)
        os.symlink(entry["link"], path)


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
    words = ("ACCESS_DENIED", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NO_SUCH_BUCKET")
    return isinstance(error, _Refused) or any(word in text for word in words)


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
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
