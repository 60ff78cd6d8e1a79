"""Output of `trainyard run`: whole lines with their prefix, in order, harmless on a terminal, exact in the logs, and never lost."""

import os
import re
import select
import signal
import subprocess
import sys
import time
import zlib

from harness import COMMAND, Case, main
from runs import is_pending

PYTHON = sys.executable
PIECE = 64 << 10  # a longer line is shown in pieces of about this size

with open(COMMAND, "rb") as command:
    SANITIZED = b"__asan_init" in command.read()
# Of controller and agent together; AddressSanitizer keeps shadows and up to 256 MiB of freed blocks in each.
MEMORY_LIMIT_KIB = (640 if SANITIZED else 32) << 10

UNSHOWN = re.compile(rb"\\x([0-9a-f]{2})")


class OutputCase(Case):
    PROGRESS = "none"

    def setUp(self):
        super().setUp()
        self.runs = 0

    def command(self, *args):
        """The words of a run whose name is known (see log()), and which says nothing itself."""
        self.runs += 1
        return [COMMAND, "run", "--storage-path", self.storage, "--name", "r%d" % self.runs, "--num-cpus", "64",
                "--progress", self.PROGRESS, *map(str, args)]

    def bytes_of(self, *args, status=0, env=None, **more):
        """What a run wrote, as bytes: (standard output, standard error)."""
        finished = subprocess.run(self.command(*args), cwd=self.place, env=self.environment_with(env), stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=180, **more)
        self.assertEqual(status, finished.returncode, (args, finished.stdout[-500:], finished.stderr[-2000:]))
        return finished.stdout, finished.stderr

    def log(self, rank=0):
        with open(os.path.join(self.storage, "r%d" % self.runs, "logs", "rank-%d.log" % rank), "rb") as file:
            return file.read()

    def wait_until_still(self, sizes):
        """Until the sizes of files stop growing: whoever writes them is blocked."""
        still = 0
        before = None
        while still < 15:
            now = sizes()
            still = still + 1 if now == before and sum(now) > 0 else 0
            before = now
            time.sleep(0.02)

    def print_bytes(self, data, *args, **more):
        """A run of one worker that writes these bytes: (out, err)."""
        path = self.write("data", data)
        return self.bytes_of(*args, "--", "cat", path, **more)


def peak_kib(pid):
    """The most memory that the process and its children (agents) have used."""
    with open("/proc/%d/status" % pid) as file:
        peak = int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1))
    return peak


def is_full(pid):
    """The pipe that is the standard output of the process takes nothing now."""
    with open("/proc/%d/fd/1" % pid, "wb", buffering=0) as pipe:
        return not select.select([], [pipe], [], 0)[1]


def agents(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return list(map(int, file.read().split()))


class Lines(OutputCase):
    def test_prefix_and_order_of_each_rank(self):
        out, err = self.bytes_of("-n", 4, "--", "sh", "-c", "for i in 1 2 3; do echo $RANK.$i; done")
        self.assertEqual(b"", err)
        lines = out.splitlines()
        self.assertEqual(12, len(lines))
        for rank in range(4):
            mine = [line for line in lines if line.startswith(b"[rank %d] " % rank)]
            self.assertEqual([b"[rank %d] %d.%d" % (rank, rank, i) for i in (1, 2, 3)], mine)
            self.assertEqual(b"".join(b"%d.%d\n" % (rank, i) for i in (1, 2, 3)), self.log(rank))

    def test_lines_are_whole_whatever_pieces_they_come_in(self):
        script = "for i in 1 2 3 4 5; do printf a; sleep 0.002; printf b$RANK; sleep 0.002; printf 'c\\nd'; done"
        out, _ = self.bytes_of("-n", 4, "--", "sh", "-c", script)
        for rank in range(4):
            mine = [line.split(b"] ", 1)[1] for line in out.splitlines() if line.startswith(b"[rank %d] " % rank)]
            self.assertEqual([b"ab%dc" % rank] + [b"dab%dc" % rank] * 4 + [b"d"], mine)

    def test_last_line_without_its_end(self):
        out, _ = self.bytes_of("-n", 2, "--", "printf", "no end")
        self.assertEqual([b"[rank 0] no end", b"[rank 1] no end"], sorted(out.splitlines()))
        self.assertTrue(out.endswith(b"\n"))
        self.assertEqual(b"no end", self.log())

    def test_empty_lines(self):
        out, _ = self.print_bytes(b"\n\na\n\n")
        self.assertEqual(b"[rank 0] \n[rank 0] \n[rank 0] a\n[rank 0] \n", out)

    def test_no_output(self):
        self.assertEqual((b"", b""), self.bytes_of("-n", 2, "--", "true"))
        self.assertEqual((b"", b""), self.print_bytes(b""))

    def test_carriage_returns(self):
        data = b"10%\r20%\r30%\ndos\r\nnext\r\n\r\nend\r"
        out, _ = self.print_bytes(data)
        self.assertEqual([b"30%", b"dos", b"next", b"", b"end"], [line[9:] for line in out.split(b"\n")[:-1]])
        self.assertEqual(data, self.log())

    def test_long_lines(self):
        words = b"".join(b"%d " % i for i in range(400000))
        out, _ = self.print_bytes(b"short\n" + words + b"\nshort\n")
        lines = out.split(b"\n")[:-1]
        self.assertEqual(b"[rank 0] short", lines[0])
        self.assertEqual(b"[rank 0] short", lines[-1])
        pieces = [line[9:] for line in lines[1:-1]]
        self.assertTrue(all(piece.endswith(b"\\") for piece in pieces[:-1]))
        self.assertEqual(words, b"".join(piece[:-1] for piece in pieces[:-1]) + pieces[-1])
        self.assertLessEqual(max(map(len, pieces)), PIECE + 8)
        self.assertEqual(b"short\n" + words + b"\nshort\n", self.log())

    def test_python_holds_nothing_back(self):
        """What a program printed before it was killed is there, though a pipe is no terminal; who sets the variable is obeyed."""
        dies = "import os, signal; print('said'); os.kill(os.getpid(), signal.SIGSEGV)"
        out, _ = self.bytes_of("--", PYTHON, "-c", dies, status=128 + signal.SIGSEGV)
        self.assertEqual(b"[rank 0] said\n", out)
        shown = ("--", "sh", "-c", "echo =$PYTHONUNBUFFERED=")
        self.assertEqual(b"[rank 0] =1=\n", self.bytes_of(*shown)[0])
        self.assertEqual(b"[rank 0] =x=\n", self.bytes_of(*shown, env={"PYTHONUNBUFFERED": "x"})[0])
        self.assertEqual(b"[rank 0] ==\n", self.bytes_of("--env", "PYTHONUNBUFFERED=", *shown)[0])

    def test_standard_error_is_apart(self):
        script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done"
        out, err = self.bytes_of("-n", 2, "--", "sh", "-c", script)
        for rank in range(2):
            for text, word in ((out, b"out"), (err, b"err")):
                mine = [line for line in text.splitlines() if line.startswith(b"[rank %d] " % rank)]
                self.assertEqual([b"[rank %d] %s %d" % (rank, word, i) for i in (1, 2, 3)], mine)

    def test_a_stream_that_is_closed_early(self):
        out, err = self.bytes_of("--", "sh", "-c", "echo a; exec >&-; echo b >&2; exec 2>&-; exit 0")
        self.assertEqual((b"[rank 0] a\n", b"[rank 0] b\n"), (out, err))

    def test_quiet(self):
        self.assertEqual((b"", b""), self.bytes_of("--quiet", "--", "sh", "-c", "echo out; echo err >&2"))
        self.assertEqual([b"err", b"out"], sorted(self.log().splitlines()))

    def test_attempts_are_one_log(self):
        script = "echo $TRAINYARD_ATTEMPT; exit $((TRAINYARD_ATTEMPT < 3))"
        out, _ = self.bytes_of("--max-failures", 2, "--", "sh", "-c", script)
        self.assertEqual(b"[rank 0] 1\n[rank 0] 2\n[rank 0] 3\n", out)
        self.assertEqual(b"1\n2\n3\n", self.log())


class Bytes(OutputCase):
    HARMLESS = b"\t\n" + bytes(range(0x20, 0x7f))

    def test_all_bytes(self):
        """A CR begins the line anew: see test_carriage_returns."""
        data = bytes(range(256)).replace(b"\r", b"") * 3
        out, _ = self.print_bytes(data)
        self.assertEqual(data, self.log())
        self.assertEqual(set(), set(out) - set(self.HARMLESS))
        shown = b"".join(line[9:] for line in out.split(b"\n"))
        original = UNSHOWN.sub(lambda match: bytes([int(match[1], 16)]), shown.replace(b"\\x5c", b"\\"))
        self.assertEqual(data.replace(b"\n", b""), original)

    def test_escapes_are_harmless(self):
        data = b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m\x9b31m\xc2\x9b31m\x08\x7f\n"
        self.write("data", data)
        out, err = self.bytes_of("--", "sh", "-c", "cat data; cat data >&2")
        for text in (out, err):
            self.assertEqual(set(), set(text) - set(self.HARMLESS))
            self.assertIn(rb"\x1b[31mred\x1b[0m", text)

    def test_text_of_all_languages_passes(self):
        text = "größe 训练 обучение ✓ 🚀\n".encode()
        self.assertEqual(b"[rank 0] " + text, self.print_bytes(text)[0])

    def test_bytes_that_are_no_text(self):
        # Overlong forms, surrogates, beyond the last character, cut sequences.
        for wrong in (b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xe8\xae", b"\x80"):
            with self.subTest(wrong):
                out, _ = self.print_bytes(b"a" + wrong + b"z\n")
                self.assertEqual(b"[rank 0] a" + b"".join(b"\\x%02x" % byte for byte in wrong) + b"z\n", out)
                self.assertEqual(b"a" + wrong + b"z\n", self.log())

    def test_characters_that_come_in_pieces(self):
        script = "printf '\\303'; sleep 0.02; printf '\\237\\n'"
        self.assertEqual("[rank 0] ß\n".encode(), self.bytes_of("--", "sh", "-c", script)[0])

    def test_without_prefix_bytes_pass_as_they_are(self):
        data = bytes(range(256)) * 10 + b"x" * 200000 + b"\r\r\n\x1b[0m\n"
        self.assertEqual(data, self.print_bytes(data, "--no-prefix")[0])

    def test_without_prefix_lines_of_ranks_stay_whole(self):
        out, _ = self.bytes_of("-n", 4, "--no-prefix", "--", "sh", "-c", "for i in 1 2 3; do printf a; sleep 0.002; printf 'b\\n'; done")
        self.assertEqual(b"ab\n" * 12, out)


# Each line: rank, stream, number, a payload that depends on them.
FLOOD = r"""
import os, sys
rank, lines = os.environ["RANK"], int(sys.argv[1])
texts = [[], []]
for i in range(lines):
    for stream in (0, 1):
        texts[stream].append("%s.%d.%d.%s\n" % (rank, stream, i, "x" * (i * 7 % 90)))
    if i % 100 == 99 or i == lines - 1:
        for stream in (0, 1):
            os.write(stream + 1, "".join(texts[stream]).encode())
            texts[stream] = []
"""


class Flood(OutputCase):
    def check(self, text, stream, ranks, lines):
        """Every line of every rank, once, in order, unharmed."""
        found = {rank: [] for rank in range(ranks)}
        for line in text.splitlines():
            prefix, rest = line.split(b"] ", 1)
            found[int(prefix[len(b"[rank "):])].append(rest)
        for rank in range(ranks):
            wanted = [b"%d.%d.%d.%s" % (rank, stream, i, b"x" * (i * 7 % 90)) for i in range(lines)]
            self.assertEqual(len(wanted), len(found[rank]), "lines of rank %d" % rank)
            self.assertEqual(zlib.crc32(b"\n".join(wanted)), zlib.crc32(b"\n".join(found[rank])), "rank %d" % rank)

    def test_64_ranks(self):
        script = self.write("flood.py", FLOOD)
        out, err = self.bytes_of("-n", 64, "--", PYTHON, "-S", "-E", script, 1500)
        self.check(out, 0, 64, 1500)
        self.check(err, 1, 64, 1500)
        # Two pipes end in one log: whole are its bytes, not always its lines.
        whole = sum(len(b"%d.%d.%s\n" % (stream, i, b"x" * (i * 7 % 90))) for stream in (0, 1) for i in range(1500))
        for rank in range(64):
            self.assertEqual(whole + 3000 * len("%d." % rank), len(self.log(rank)))

    def test_several_nodes(self):
        cluster = self.write("cluster.yaml", "nodes: [{name: 'n[1-4]', resources: {CPU: 2}}]\n")
        script = self.write("flood.py", FLOOD)
        self.runs += 1
        finished = subprocess.run([COMMAND, "run", "--storage-path", self.storage, "--progress", "none", "--cluster", cluster, "-n", "8", "--", PYTHON, "-S", "-E",
                                   script, "3000"], cwd=self.place, env=self.environment, capture_output=True, timeout=180)
        self.assertEqual(0, finished.returncode, finished.stderr[-500:])
        self.check(finished.stdout, 0, 8, 3000)
        self.check(finished.stderr, 1, 8, 3000)

    def test_a_failure_keeps_what_was_written_before_it(self):
        out, _ = self.bytes_of("--", "sh", "-c", "seq 1 200000; exit 3", status=3)
        self.assertEqual(b"".join(b"[rank 0] %d\n" % i for i in range(1, 200001)), out)

    def test_a_slow_reader_loses_nothing(self):
        """It takes a little at a time; everybody waits for it, and nobody's memory grows."""
        process = subprocess.Popen(self.command("-n", 4, "--", "seq", "-f", "%.0f abcdefghijklmnopqrstuvwxyz", 1, 100000), cwd=self.place,
                                   env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        logs = [os.path.join(self.storage, "r1", "logs", "rank-%d.log" % rank) for rank in range(4)]

        def sizes():  # a rank of which nothing was read before all had to wait has no log yet
            return [os.path.getsize(log) if os.path.exists(log) else 0 for log in logs]

        self.wait_until_still(sizes)
        whole = sum(len("%d abcdefghijklmnopqrstuvwxyz\n" % i) for i in range(1, 100001))
        self.assertLess(sum(sizes()), 4 * whole, "nobody waited for the reader")
        pids = [process.pid, *agents(process.pid)]
        self.assertEqual(2, len(pids))
        parts = []
        while True:
            part = process.stdout.read(100000)
            if not part:
                break
            parts.append(part)
            alive = [pid for pid in pids if os.path.exists("/proc/%d" % pid)]
            if len(parts) < 50 and len(alive) == 2:
                self.assertLess(sum(map(peak_kib, pids)), MEMORY_LIMIT_KIB)
        self.assertEqual((0, b""), (process.wait(180), process.stderr.read()))
        process.stdout.close()
        process.stderr.close()
        lines = b"".join(parts).splitlines()
        for rank in range(4):
            prefix = b"[rank %d] " % rank
            mine = [line for line in lines if line.startswith(prefix)]
            self.assertEqual([prefix + b"%d abcdefghijklmnopqrstuvwxyz" % i for i in range(1, 100001)], mine)

    def test_much_without_a_line_end_stays_small(self):
        process = subprocess.Popen(self.command("-n", 2, "--", "sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x; : > done.$RANK; "
                                                "while [ ! -e go ]; do sleep 0.01; done"),
                                   cwd=self.place, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        counter = subprocess.Popen(["tr", "-cd", "x"], stdin=process.stdout, stdout=subprocess.PIPE)
        count = subprocess.Popen(["wc", "-c"], stdin=counter.stdout, stdout=subprocess.PIPE)
        process.stdout.close()
        counter.stdout.close()
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.place, "done.%d" % rank)) for rank in (0, 1)), seconds=180)
        peak = sum(map(peak_kib, [process.pid, *agents(process.pid)]))
        self.write("go", "")
        self.assertEqual(b"200000000", count.communicate(timeout=180)[0].strip())
        self.assertEqual(0, process.wait(180))
        counter.wait()
        self.assertLess(peak, MEMORY_LIMIT_KIB)
        os.remove(os.path.join(self.storage, "r1", "logs", "rank-0.log"))
        os.remove(os.path.join(self.storage, "r1", "logs", "rank-1.log"))


class Reader(OutputCase):
    def test_a_reader_that_goes_away_does_not_end_the_run(self):
        process = subprocess.Popen(self.command("-n", 2, "--", "sh", "-c", "seq 1 100000; echo last"), cwd=self.place, env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(process.stdout.readline().startswith(b"[rank "))
        process.stdout.close()
        self.assertEqual((b"", 0), (process.communicate(timeout=180)[1], process.returncode))
        for rank in (0, 1):
            self.assertTrue(self.log(rank).endswith(b"100000\nlast\n"))

    def test_nobody_reads_from_the_start(self):
        reader, writer = os.pipe()
        os.close(reader)
        finished = subprocess.run(self.command("--", "sh", "-c", "echo lost; echo lost >&2; exit 7"), cwd=self.place,
                                  env=self.environment, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, timeout=180)
        os.close(writer)
        self.assertEqual(7, finished.returncode)
        self.assertEqual(b"lost\nlost\n", self.log())

    def test_a_full_disk_is_told_once(self):
        with open("/dev/full", "wb") as full:
            finished = subprocess.run(self.command("-n", 2, "--", "seq", 1, 50000), cwd=self.place, env=self.environment,
                                      stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, timeout=180)
        self.assertEqual(0, finished.returncode, finished.stderr)
        self.assertEqual(1, finished.stderr.count(b"\n"), finished.stderr)
        self.assertIn(b"No space left on device", finished.stderr)
        self.assertTrue(self.log().endswith(b"\n50000\n"))

    def stuck(self, *args, stderr=subprocess.PIPE):
        """A flood that nobody reads, blocked; its Popen."""
        process = subprocess.Popen(self.command("-n", 2, *args, "--", "seq", 1, 10000000), cwd=self.place, env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)
        self.addCleanup(process.communicate)
        logs = [os.path.join(self.storage, "r%d" % self.runs, "logs", "rank-%d.log" % rank) for rank in (0, 1)]
        self.wait_for(lambda: all(map(os.path.exists, logs)))
        self.wait_for(lambda: is_full(process.pid), "a pipe that takes no more", process)
        self.wait_until_still(lambda: [os.path.getsize(log) for log in logs])
        self.assertIsNone(process.poll())
        return process

    def test_a_reader_that_never_reads_cannot_keep_the_run_from_being_stopped(self):
        process = self.stuck()
        process.send_signal(signal.SIGINT)
        self.assertIn(b"SIGINT", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        self.assertIn(b"logs", process.stderr.readline())
        self.assertIn(b"interrupted", process.communicate(timeout=180)[1])
        self.assertEqual(130, process.returncode)

    def test_a_reader_of_all_that_never_reads_cannot_either(self):
        """As behind `2>&1 | less`: our own words find no room, and wait for none."""
        process = self.stuck(stderr=subprocess.STDOUT)
        self.addCleanup(process.kill)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            self.wait_for(lambda: not is_pending(process.pid, signal.SIGINT))
        self.assertEqual(130, process.wait(180))

    def test_what_is_left_in_the_end_cannot_keep_a_stopped_run(self):
        """A little more than a pipe holds: so little that the flood is none, and the run ends with it in hand."""
        process = subprocess.Popen(self.command("-n", 1, "--grace", "100ms", "--", "sh", "-c", "seq 1 20000; : > written; exec sleep 100000"),
                                   cwd=self.place, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.wait_for(lambda: os.path.exists(os.path.join(self.place, "written")))
        process.terminate()
        self.assertEqual(143, process.wait(180))
        err = process.stderr.read()
        self.assertIn(b"nobody takes the workers' output: the rest of it is only in ", err)
        self.assertTrue(self.log().endswith(b"\n20000\n"))

    def test_one_signal_is_enough(self):
        process = self.stuck("--grace", "0")
        process.terminate()
        self.assertEqual(143, process.wait(180))

    def test_a_stopped_command_goes_on_where_it_was(self):
        process = subprocess.Popen(self.command("-n", 2, "--", "sh", "-c", "echo begin; while [ ! -e go ]; do sleep 0.005; done; seq 1 200000; : > done"),
                                   cwd=self.place, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.assertIn(b"begin", process.stdout.readline())
        process.send_signal(signal.SIGSTOP)
        self.write("go", "")
        logs = [os.path.join(self.storage, "r1", "logs", "rank-%d.log" % rank) for rank in (0, 1)]
        self.wait_for(lambda: all(map(os.path.exists, logs)))
        self.wait_until_still(lambda: [os.path.getsize(log) for log in logs])
        process.send_signal(signal.SIGCONT)
        out = process.communicate(timeout=180)[0].splitlines()
        self.assertEqual(0, process.returncode)
        for rank in (0, 1):
            mine = [line for line in out if line.startswith(b"[rank %d] " % rank) and not line.endswith(b"begin")]
            self.assertEqual([b"[rank %d] %d" % (rank, i) for i in range(1, 200001)], mine)

    def test_output_in_a_file(self):
        path = os.path.join(self.place, "out")
        with open(path, "wb") as file:
            subprocess.run(self.command("-n", 2, "--", "seq", 1, 100000), cwd=self.place, env=self.environment, stdout=file, timeout=180, check=True)
        with open(path, "rb") as file:
            self.assertEqual(200000, file.read().count(b"\n"))

    def test_both_streams_in_one_file(self):
        path = os.path.join(self.place, "out")
        with open(path, "ab") as file:
            subprocess.run(self.command("-n", 2, "--", "sh", "-c", "seq 1 1000; seq 1 1000 >&2"), cwd=self.place, env=self.environment,
                           stdout=file, stderr=file, timeout=180, check=True)
        with open(path, "rb") as file:
            self.assertEqual(4000, file.read().count(b"\n"))


if __name__ == "__main__":
    main()
