"""The other side of a run (trainyard.remote) without the run: a driver that is killed between any two calls to the file system,
what is there then, and what the next one makes of it, here or on another machine; drivers that meet there. The file system is a
table in memory."""

import contextlib
import json
import os
import pickle
import shutil
import sqlite3

import pytest
from trainyard import Checkpoint, manifest, remote
from trainyard import there as _there

pyarrow = pytest.importorskip("pyarrow")
pyarrow_fs = pytest.importorskip("pyarrow.fs")


class Killed(BaseException):
    """The driver is dead: none of its calls reaches the other side any more."""


class Handler(pyarrow_fs.FSSpecHandler):
    """Of files in memory, for one driver that dies at call `last`. A file is there to some part from when it is opened."""

    def __init__(self, memory, last=None):
        super().__init__(memory)
        self.last = last
        self.calls = 0

    def count(self):
        self.calls += 1
        if self.last is not None and self.calls > self.last:
            raise Killed

    def open_output_stream(self, path, metadata):
        self.count()
        self.fs.pipe_file(path, b"{")
        return pyarrow.PythonFile(Written(self, path), mode="w")


def counted(name):
    def call(self, *arguments):
        self.count()
        return getattr(super(Handler, self), name)(*arguments)

    return call


for name in ("create_dir", "delete_file", "delete_dir", "move", "get_file_info", "get_file_info_selector", "open_input_stream"):
    setattr(Handler, name, counted(name))


class Written:
    def __init__(self, handler, path):
        self.handler, self.path, self.data, self.closed = handler, path, b"", False

    def write(self, data):
        self.data += bytes(data)
        return len(data)

    def close(self):
        if not self.closed:
            self.closed = True
            self.handler.count()
            self.handler.fs.pipe_file(self.path, self.data)

    def writable(self):
        return True

    def flush(self):
        pass


class Driver:
    """Of the run "run" in a directory of this machine, with the checkpoints that it keeps."""

    def __init__(self, home, memory, last=None, keep=1):
        self.handler = Handler(memory, last)
        self.remote = remote.Remote("bucket/runs", pyarrow_fs.PyFileSystem(self.handler), lambda text: None)
        self.home, self.local, self.keep = home, os.path.join(home, "run"), keep

    def begin(self, resume=False):
        self.remote.prepare("run", self.home, resume)
        os.makedirs(self.local, exist_ok=True)
        with self.journal() as journal:
            journal.execute("create table if not exists checkpoints (number integer, name text)")
        self.remote.begin("run", self.local)

    @contextlib.contextmanager
    def journal(self):
        with contextlib.closing(sqlite3.connect(os.path.join(self.local, "run.db"))) as journal, journal:
            yield journal

    def kept(self):
        with self.journal() as journal:
            return [name for (name,) in journal.execute("select name from checkpoints order by number")]

    def commit(self, number, name=None, bring=False, link=None):
        """As the controller does; with `bring` ranks have brought the files there."""
        name = name or f"checkpoint_{number:06}"
        place = os.path.join(self.local, name)
        os.makedirs(place + "/part", exist_ok=True)
        files = {"step": str(number), "part/weights": "x" * number}
        for path, text in files.items():
            if bring:
                self.handler.fs.pipe_file(f"bucket/runs/run/{name}/{path}", text.encode())
            else:
                with open(os.path.join(place, path), "w") as file:
                    file.write(text)
        if bring:
            os.rmdir(place + "/part")
            _there.note(place, name)
        listed = manifest.listed(place)
        if link is not None:
            os.symlink(link, place + "/latest")
            listed["trainyard"]["files"].append({"path": "latest", "link": link})
        listed["trainyard"].update(run="0" * 16, name=name, number=number)
        with open(os.path.join(place, manifest.INSIDE), "w") as file:
            json.dump(listed, file)
        with self.journal() as journal:
            journal.execute("delete from checkpoints where name = ?", (name,))
            journal.execute("insert into checkpoints values (?, ?)", (number, name))
        self.remote.committed(place)
        for gone in self.kept()[: -self.keep]:
            with self.journal() as journal:
                journal.execute("delete from checkpoints where name = ?", (gone,))
            shutil.rmtree(os.path.join(self.local, gone))

    def work(self):
        """What the thread of a driver does."""
        while not self.remote._jobs.empty():
            self.remote._try(*self.remote._jobs.get())

    def end(self):
        self.remote._jobs.put(("end", ""))
        self.work()
        assert self.remote._failed == {}

    def whole(self, name):
        """Whether a reader elsewhere finds the checkpoint; then all its files are there."""
        found = self.remote.checkpoint(name)
        if found is not None:
            listed = self.remote._list_of(f"bucket/runs/run/{name}")[1]["trainyard"]["files"]
            sizes = {one["path"]: self.handler.fs.size(f"bucket/runs/run/{name}/{one['path']}") for one in listed}
            assert sizes == {one["path"]: one["size"] for one in listed}
        return found is not None


class Memory:
    """Files of several file systems, of which each is a copy of another at its beginning."""

    def __new__(cls, files=()):
        memory = pytest.importorskip("fsspec.implementations.memory")
        made = type("Memory", (memory.MemoryFileSystem,), {"store": {}, "pseudo_dirs": [""], "cachable": False})()
        for path, data in dict(files).items():
            made.pipe_file(path, data)
        return made


def contents(memory):
    return {path: memory.cat_file(path) for path in memory.store}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(remote, "_copy_journal", lambda source, target: shutil.copyfile(source, target))
    monkeypatch.setattr(remote, "PAUSE_S", 0)
    monkeypatch.setattr(remote.Remote, "_work", lambda self: None)  # the test works in its place


def names(memory):
    """Of checkpoints of which something is there."""
    inside = {path.split("/", 4)[4] for path in memory.store if path.startswith("/bucket/runs/run/")}
    found = {path.split("/")[0] for path in inside if "/" in path}
    return found | {path[1:].removesuffix(".manifest") for path in inside if path.endswith(".manifest")}


def killed_at(call, home, bring):
    """What is there when the driver of three checkpoints, of which one is kept, dies at this call; None where it does not."""
    driver = Driver(home, Memory(), call)
    try:
        driver.begin()
        for number in (1, 2, 3):
            driver.work()
            driver.commit(number, bring=bring)
        driver.end()
    except Killed:
        return contents(driver.handler.fs)
    return None


@pytest.mark.parametrize("bring", [False, True])
def test_a_driver_that_is_killed_between_any_two_calls(tmp_path, bring):
    call = 0
    while (left := killed_at(call, str(tmp_path / f"home-{call}"), bring)) is not None:
        begun = f"/bucket/runs/run/{remote.STATE}" in left
        before = Driver("/nowhere", Memory(left))
        before.remote.path = "bucket/runs/run"
        for home in (f"home-{call}", f"other-{call}"):
            where = f"killed at call {call}, gone on with in {home}"
            driver = Driver(str(tmp_path / home), Memory(left))
            driver.begin(resume=True)
            kept = driver.kept()
            for name in kept if begun else ():
                is_here = os.path.isdir(os.path.join(driver.local, name))
                assert is_here == (home.startswith("home") or before.whole(name)), where
            driver.work()
            driver.commit(4, bring=bring)
            driver.end()
            assert driver.kept() == ["checkpoint_000004"] and driver.whole("checkpoint_000004"), where
            more = names(driver.handler.fs) - {"checkpoint_000004"}
            assert not any(driver.whole(name) for name in more), where
            assert bring or not more, where  # of what ranks had brought before they reported it no driver has heard
        call += 1
    assert call > 30


def test_a_name_that_is_brought_again_after_its_removal_is_refused(tmp_path):
    """The removal may have taken what was brought meanwhile. Where it is kept still, it is replaced."""
    driver = Driver(str(tmp_path), Memory())
    driver.begin()
    for number, name in enumerate(("slot-0", "slot-0", "slot-1", "slot-0")):
        driver.commit(number + 1, name, bring=True)
        driver.work()
        assert driver.whole(name) == (number < 3)
    assert list(driver.remote._failed) == ["slot-0"] and "a name of its own" in driver.remote._failed["slot-0"]
    driver.commit(5, "slot-2", bring=True)
    driver.end()  # what is no longer kept need not be there
    again = Driver(str(tmp_path / "other"), driver.handler.fs)
    again.begin(resume=True)
    again.work()
    again.commit(6, "slot-0", bring=True)
    again.work()
    assert list(again.remote._failed) == ["slot-0"], again.remote._failed


def test_what_was_brought_there_is_not_fetched(tmp_path, monkeypatch):
    driver = Driver(str(tmp_path), Memory())
    driver.begin()
    driver.commit(1, "mine", bring=True)
    driver.end()
    read = []
    opened = Handler.open_input_stream
    monkeypatch.setattr(Handler, "open_input_stream", lambda self, path: read.append(path) or opened(self, path))
    other = Driver(str(tmp_path / "other"), driver.handler.fs)
    other.begin(resume=True)
    assert not [path for path in read if "/mine/" in path and not path.endswith(manifest.INSIDE)]
    assert os.listdir(other.local + "/mine") == [_there.NOTE] and manifest.damage(other.local + "/mine") is None
    with open(manifest.beside_name(other.local + "/mine")) as file:
        listed = json.load(file)["trainyard"]
    assert (listed["run"], listed["name"], listed["number"]) == ("0" * 16, "mine", 1)  # by which the run removes it


@pytest.mark.parametrize("link", ["step", "part"])
def test_a_link_is_one_again_on_another_machine(tmp_path, link):
    driver = Driver(str(tmp_path), Memory())
    driver.begin()
    driver.commit(1, link=link)
    driver.end()
    there = {path.split("/latest", 1)[1] for path in driver.handler.fs.store if "/latest" in path}
    assert there == {"" if link == "step" else "/weights"}  # who reads it there finds what it leads to
    other = Driver(str(tmp_path / "other"), driver.handler.fs)
    other.begin(resume=True)
    assert os.readlink(other.local + "/checkpoint_000001/latest") == link


def test_links_that_lead_out_are_not_made(tmp_path):
    driver = Driver(str(tmp_path), Memory())
    driver.begin()
    driver.commit(1, link="/etc/hostname")
    driver.end()
    with pytest.raises(OSError, match="leads out of it"):
        Driver(str(tmp_path / "other"), driver.handler.fs).begin(resume=True)
    assert os.listdir(tmp_path / "other") == []


def test_of_two_drivers_the_one_that_has_gone_on_is_let(tmp_path):
    first = Driver(str(tmp_path), Memory())
    first.begin()
    first.commit(1)
    first.work()
    second = Driver(str(tmp_path / "other"), first.handler.fs)
    second.begin(resume=True)
    second.work()
    first.commit(2)
    first.work()
    assert "has gone on with this run" in first.remote._failed["checkpoint_000002"]
    second.commit(2)
    second.end()
    assert second.whole("checkpoint_000002") and names(second.handler.fs) == {"checkpoint_000002"}


def test_what_is_gone_there_is_brought_again_from_here(tmp_path):
    driver = Driver(str(tmp_path), Memory(), keep=2)
    driver.begin()
    driver.commit(1)
    driver.commit(2)
    driver.end()
    again = Driver(str(tmp_path), Memory(), keep=2)
    again.begin(resume=True)
    again.end()
    assert again.whole("checkpoint_000001") and again.whole("checkpoint_000002")


def test_a_removal_that_fails_is_tried_again(tmp_path, monkeypatch):
    driver = Driver(str(tmp_path), Memory())
    driver.begin()
    driver.commit(1)
    driver.work()
    failed = []
    delete = Handler.delete_dir

    def fail_once(self, path):
        if not failed:
            failed.append(path)
            raise OSError("503 Slow Down")
        return delete(self, path)

    monkeypatch.setattr(Handler, "delete_dir", fail_once)
    driver.commit(2)
    driver.end()
    assert failed and names(driver.handler.fs) == {"checkpoint_000002"}


def stands_for(place, name, **files):
    """A directory that stands for the checkpoint of this name, with files that ranks copied."""
    _there.note(str(place), name)
    for path, text in files.items():
        (place / path).write_text(text)
    return str(place)


def test_files_that_ranks_copied_are_waited_for(tmp_path, monkeypatch):
    memory = Memory({"bucket/run/mine/brought": b"x"})
    there = _there.There("bucket/run", lambda: pyarrow_fs.PyFileSystem(Handler(memory)))
    place = stands_for(tmp_path / "mine", "mine", copied="four")
    waited = []

    def come(seconds):
        waited.append(seconds)
        memory.pipe_file("bucket/run/mine/copied", b"four"[: 2 * len(waited)])

    monkeypatch.setattr(_there.time, "sleep", come)
    assert _there.found(place, there, waits=True).path == "bucket/run/mine"
    assert len(waited) == 2
    monkeypatch.setattr(_there, "_ARRIVE_S", 0)
    memory.rm_file("bucket/run/mine/copied")
    with pytest.raises(TimeoutError, match="copied did not come to bucket/run/mine"):
        _there.found(place, there, waits=True)


def test_the_file_system_is_loaded_where_there_is_a_note(tmp_path):
    there = _there.told(("bucket", b"what is no pickle"), "run")
    assert _there.found(str(tmp_path), there).path == str(tmp_path)
    place = stands_for(tmp_path / "mine", "mine")
    with pytest.raises(pickle.UnpicklingError):
        _there.found(place, there)
    with pytest.raises(FileNotFoundError, match="mine only stands for a checkpoint"):
        _there.found(place, None)


def test_a_path_on_a_file_system_that_is_given_is_no_address():
    filesystem = pyarrow_fs.SubTreeFileSystem("/one", pyarrow_fs.LocalFileSystem())
    assert remote.find("bucket/runs/", filesystem) == ("bucket/runs", filesystem)
    with pytest.raises(ValueError, match="`RunConfig.storage_path`='s3://bucket/runs' must be a path .*, without s3://"):
        remote.find("s3://bucket/runs", filesystem)


def test_where_a_checkpoint_that_is_left_where_it_is_must_lie():
    own, other = (pyarrow_fs.SubTreeFileSystem(place, pyarrow_fs.LocalFileSystem()) for place in ("/one", "/other"))
    there = _there.There("bucket/run", lambda: own)
    assert there.name_of(Checkpoint("bucket/run/a/", own)) == "a"
    with pytest.raises(ValueError, match="is outside .*, subtree:bucket/run, since its file system is another"):
        there.name_of(Checkpoint("bucket/run/a", other))
    for path in ("bucket/run", "bucket/run/a/b", "bucket/runs/a", "a"):
        with pytest.raises(ValueError, match="is outside the experiment directory.* must lie directly below"):
            there.name_of(Checkpoint(path, own))
