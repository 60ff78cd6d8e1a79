"""Checkpoint objects: directories, copies, metadata."""

import enum
import importlib.util
import json
import math
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
import types

import pytest
from trainyard import Checkpoint


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    (path / "sub").mkdir(parents=True)
    (path / "model.txt").write_text("weights")
    (path / "sub" / "more.txt").write_text("more")
    return path


def test_names_a_directory(source, monkeypatch):
    monkeypatch.chdir(source.parent)
    checkpoint = Checkpoint.from_directory("source")
    assert checkpoint.path == str(source)
    assert checkpoint == Checkpoint(source) and checkpoint != Checkpoint("/elsewhere") and checkpoint != 1
    assert repr(checkpoint) == f"Checkpoint(filesystem=local, path={source})"
    assert Checkpoint(f"file://{source}") == checkpoint
    with checkpoint.as_directory() as path:
        assert path == str(source)
    assert os.path.exists(source)


def test_is_no_path(source):
    with pytest.raises(TypeError, match="to_directory"):
        os.path.join(Checkpoint(source), "model.txt")
    for wrong in (None, 3):
        with pytest.raises(ValueError, match="path"):
            Checkpoint(wrong)
        with pytest.raises(ValueError, match="path"):
            Checkpoint.from_directory(wrong)
    with pytest.raises(ValueError, match="pyarrow.fs"):
        Checkpoint("bucket/x", filesystem=object())
    with pytest.raises(FileNotFoundError, match="nowhere"):
        with Checkpoint("/nowhere").as_directory():
            pass


def test_to_directory_is_not_the_checkpoint_itself(source):
    with pytest.raises(ValueError, match="lies in the checkpoint itself"):
        Checkpoint(source).to_directory(source / "copy")
    assert not (source / "copy").exists()
    assert Checkpoint(source).to_directory(source) == str(source)


def test_to_directory_copies(source, tmp_path):
    checkpoint = Checkpoint(source)
    target = checkpoint.to_directory(tmp_path / "copy")
    assert target == str(tmp_path / "copy")
    assert sorted(os.listdir(target)) == ["model.txt", "sub"]
    assert (tmp_path / "copy" / "sub" / "more.txt").read_text() == "more"
    temporary = checkpoint.to_directory()
    assert sorted(os.listdir(temporary)) == ["model.txt", "sub"]
    assert temporary != Checkpoint(source).to_directory()


def test_to_directory_twice_gives_the_same_directory_in_every_process(source):
    checkpoint = Checkpoint(source)
    temporary = checkpoint.to_directory()
    assert os.path.basename(temporary).startswith("checkpoint_tmp_")
    assert checkpoint.to_directory() == temporary
    assert pickle.loads(pickle.dumps(checkpoint)).to_directory() == temporary


class Elsewhere:
    """A file system as those of pyarrow are, over a directory of this machine."""

    type_name = "elsewhere"

    def __init__(self, root):
        self.root = root

    def __eq__(self, other):
        return self.root == other.root

    def get_file_info(self, asked):
        if not isinstance(asked, str):
            found = sorted((self.root / asked.base_dir).rglob("*"))
            return [self.get_file_info(str(path.relative_to(self.root))) for path in found]
        kinds = fake_pyarrow.FileType
        place = self.root / asked
        kind = kinds.Directory if place.is_dir() else kinds.File if place.exists() else kinds.NotFound
        status = place.stat() if place.exists() else None
        return types.SimpleNamespace(
            path=asked, type=kind, size=status and status.st_size, mtime_ns=status and status.st_mtime_ns
        )

    def open_input_stream(self, path):
        return open(self.root / path, "rb")

    def open_output_stream(self, path):
        return open(self.root / path, "wb")


fake_pyarrow = types.ModuleType("pyarrow.fs")
fake_pyarrow.FileType = enum.Enum("FileType", "NotFound File Directory")
fake_pyarrow.FileSelector = lambda path, recursive: types.SimpleNamespace(base_dir=path)


@pytest.fixture
def elsewhere(source, monkeypatch):
    """A checkpoint that is not on this machine."""
    if importlib.util.find_spec("pyarrow") is not None:
        fs = importlib.import_module("pyarrow.fs")
        return Checkpoint("source", filesystem=fs.SubTreeFileSystem(str(source.parent), fs.LocalFileSystem()))
    monkeypatch.setitem(sys.modules, "pyarrow", types.ModuleType("pyarrow"))
    monkeypatch.setitem(sys.modules, "pyarrow.fs", fake_pyarrow)
    return Checkpoint("source", filesystem=Elsewhere(source.parent))


def test_a_checkpoint_of_another_file_system_is_fetched(elsewhere, source, tmp_path):
    assert repr(elsewhere) == f"Checkpoint(filesystem={elsewhere.filesystem.type_name}, path=source)"
    assert elsewhere != Checkpoint(source)
    copy = elsewhere.to_directory(tmp_path / "copy")
    assert sorted(os.listdir(copy)) == ["model.txt", "sub"]
    assert (tmp_path / "copy" / "sub" / "more.txt").read_text() == "more"
    kept = os.stat(tmp_path / "copy" / "model.txt").st_ino
    (source / "sub" / "more.txt").write_text("much more")
    elsewhere.to_directory(copy)
    assert (tmp_path / "copy" / "sub" / "more.txt").read_text() == "much more"
    assert os.stat(tmp_path / "copy" / "model.txt").st_ino == kept, "it was there already"
    with pytest.raises(FileNotFoundError, match="gone"):
        Checkpoint("gone", filesystem=elsewhere.filesystem).to_directory(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_fetched_checkpoint_stays_until_the_last_reader_is_done(elsewhere):
    with elsewhere.as_directory() as first:
        with elsewhere.as_directory() as second:
            assert first == second
        assert sorted(os.listdir(first)) == ["model.txt", "sub"]
    assert not os.path.exists(first) and not os.path.exists(first + ".readers")
    with pytest.raises(RuntimeError):
        with elsewhere.as_directory() as third:
            raise RuntimeError
    assert not os.path.exists(third)


def test_a_place_for_copies_that_somebody_else_made_first(elsewhere, tmp_path, monkeypatch):
    """Where everybody may make directories, what lies in one of others is theirs: no model is read from it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with elsewhere.as_directory() as copy:
        assert os.stat(copy).st_mode & 0o777 == 0o700
    ways = [lambda: os.mkdir(copy) or os.chmod(copy, 0o777), lambda: os.symlink(tmp_path / "source", copy)]
    if os.geteuid() == 0:
        ways.append(lambda: os.mkdir(copy) or os.chown(copy, 65534, -1))
    for plant in ways:
        plant()
        with pytest.raises(PermissionError, match="a directory of yours"):
            with elsewhere.as_directory():
                pass
        os.unlink(copy) if os.path.islink(copy) else shutil.rmtree(copy, ignore_errors=True)
    assert os.path.exists(tmp_path / "source" / "model.txt")
    os.symlink(tmp_path / "source" / "model.txt", copy + ".readers")
    with pytest.raises(OSError):
        with elsewhere.as_directory():
            pass


def test_metadata_of_another_file_system(elsewhere, source):
    assert elsewhere.get_metadata() == {} and not (source / ".metadata.json").exists()
    elsewhere.set_metadata({"a": 1})
    elsewhere.update_metadata({"b": 2})
    assert elsewhere.get_metadata() == {"a": 1, "b": 2} == Checkpoint(source).get_metadata()


def test_to_directory_gives_what_the_checkpoint_holds_now(source, tmp_path):
    copy = tmp_path / "copy"
    (source / "link").symlink_to("model.txt")
    Checkpoint(source).to_directory(copy)
    before = os.stat(copy / "model.txt").st_ino
    (copy / "own").write_text("own")
    Checkpoint(source).to_directory(copy)
    assert os.stat(copy / "model.txt").st_ino == before, "what is there is not copied again"
    (copy / "model.txt").write_text("changed")
    (source / "sub" / "more.txt").write_text("later")
    Checkpoint(source).to_directory(copy)
    assert (copy / "model.txt").read_text() == (source / "model.txt").read_text()
    assert (copy / "sub" / "more.txt").read_text() == "later" and (copy / "own").read_text() == "own"
    assert os.readlink(copy / "link") == "model.txt"
    shutil.rmtree(copy)
    Checkpoint(source).to_directory(copy)
    assert sorted(os.listdir(copy)) == ["link", "model.txt", "sub"]
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name) == ["copy"]


def test_to_directory_of_nothing_leaves_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone"):
        Checkpoint(tmp_path / "gone").to_directory(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_metadata_that_processes_add_at_one_time_is_all_there(source):
    code = (
        "import sys; from trainyard import Checkpoint; c = Checkpoint(sys.argv[1])\n"
        "for n in range(20): c.update_metadata({sys.argv[2] + str(n): n})"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, str(source), name]) for name in "abc"]
    assert [process.wait() for process in both] == [0] * 3
    assert len(Checkpoint(source).get_metadata()) == 60
    assert sorted(os.listdir(source)) == [".metadata.json", "model.txt", "sub"]


def test_a_second_process_waits_for_the_first(source, tmp_path):
    (source / "big").write_bytes(os.urandom(8 << 20))
    code = (
        "import sys; from trainyard import Checkpoint; p = Checkpoint(sys.argv[1]).to_directory(sys.argv[2]); "
        "print(open(p + '/big', 'rb').read() == open(sys.argv[1] + '/big', 'rb').read())"
    )
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "copy")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0] for process in both] == ["True\n"] * 3


def test_metadata(source):
    checkpoint = Checkpoint(source)
    assert checkpoint.get_metadata() == {}
    checkpoint.set_metadata({"epoch": 3})
    checkpoint.update_metadata({"loss": 0.5})
    assert Checkpoint(source).get_metadata() == {"epoch": 3, "loss": 0.5}
    checkpoint.set_metadata({"a": 1})
    assert checkpoint.get_metadata() == {"a": 1}
    with pytest.raises(ValueError, match="trainyard"):
        checkpoint.set_metadata({"trainyard": 1})
    with pytest.raises(ValueError, match="dict"):
        checkpoint.set_metadata([1])
    assert sorted(os.listdir(source)) == [".metadata.json", "model.txt", "sub"]


def test_metadata_that_find_no_room_leave_nothing(source):
    checkpoint = Checkpoint(source)
    checkpoint.set_metadata({"a": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, before[1]))
    try:
        with pytest.raises(OSError):
            checkpoint.set_metadata({"a": "x" * 4096})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert checkpoint.get_metadata() == {"a": 1}
    assert sorted(os.listdir(source)) == [".metadata.json", "model.txt", "sub"]


def test_metadata_that_json_has_no_number_for(tmp_path):
    """The file is JSON for every reader: a run adds to it."""
    checkpoint = Checkpoint.from_directory(tmp_path)
    checkpoint.set_metadata({"best": float("inf"), "all": [1.5, {"a": (float("-inf"), "nan")}], "one": {"$float": 3}})
    checkpoint.update_metadata({"last": float("nan")})

    def refuse(token):
        raise ValueError(token)

    json.loads((tmp_path / ".metadata.json").read_text(), parse_constant=refuse)
    found = Checkpoint(str(tmp_path)).get_metadata()
    assert math.isnan(found.pop("last"))
    assert found == {"best": float("inf"), "all": [1.5, {"a": [float("-inf"), "nan"]}], "one": {"$float": 3}}
    with pytest.raises(ValueError, match="the name '\\$float' is taken"):
        checkpoint.set_metadata({"$float": "inf"})


def test_what_is_no_path_and_no_metadata(tmp_path):
    checkpoint = Checkpoint.from_directory(tmp_path)
    for call, what in (
        (Checkpoint, "Checkpoint(path)"),
        (Checkpoint.from_directory, "Checkpoint.from_directory(path)"),
        (checkpoint.to_directory, "Checkpoint.to_directory(path)"),
    ):
        with pytest.raises(ValueError, match=rf"^`{re.escape(what)}` must be a path, not int$"):
            call(3)
    checkpoint.set_metadata({"a": 1})
    with pytest.raises(ValueError, match="^`metadata` must be a dict, not list"):
        checkpoint.update_metadata([1])
    with pytest.raises(TypeError, match="^`metadata` must be what JSON can carry: .*object"):
        checkpoint.update_metadata({"b": object()})
    assert checkpoint.get_metadata() == {"a": 1} and os.listdir(tmp_path) == [".metadata.json"]
