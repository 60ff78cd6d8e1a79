"""Standard input of workers: none unless asked for, which a worker that reads is told; else exact, with its end, at the reader's pace."""

import hashlib
import os
import signal
import subprocess
import sys

from harness import main
from test_output import MEMORY_LIMIT_KIB, OutputCase, agents, peak_kib
from test_terminal import Terminal

TOLD = b"read standard input, which was at its end"
SUM = "import hashlib, sys; print(hashlib.file_digest(sys.stdin.buffer, 'md5').hexdigest() if hasattr(hashlib, 'file_digest') " \
      "else hashlib.md5(sys.stdin.buffer.read()).hexdigest())"


class InputCase(OutputCase):
    def feed(self, data, *args, status=0):
        """A run that is given this input: (standard output, standard error)."""
        finished = subprocess.run(self.command(*args), cwd=self.place, env=self.environment, input=data, capture_output=True, timeout=180)
        self.assertEqual(status, finished.returncode, finished)
        return finished.stdout, finished.stderr


class Nothing(InputCase):
    def test_a_worker_that_reads_is_told(self):
        out, err = self.feed(b"unread\n", "--", "sh", "-c", "cat; echo done")
        self.assertEqual(b"[rank 0] done\n", out)
        self.assertEqual(1, err.count(b"\n"), err)
        self.assertIn(b"rank 0 " + TOLD, err)
        self.assertIn(b"--stdin RANK", err)

    def test_what_is_told_holds_where_another_rank_gets_it(self):
        _, err = self.feed(b"", "-n", 2, "--stdin", 0, "--", "cat")
        self.assertIn(TOLD + b": workers get none but by --stdin RANK", err)

    def test_it_is_told_once(self):
        _, err = self.feed(b"", "-n", 4, "--max-failures", 1, "--", "sh", "-c", "cat; exit $((TRAINYARD_ATTEMPT < 2))")
        self.assertEqual(1, err.count(TOLD), err)

    def test_who_does_not_read_is_told_nothing(self):
        for words in (["true"], [sys.executable, "-c", "print()"], ["sh", "-c", ": < /dev/null; [ ! -t 0 ]"]):
            with self.subTest(words):
                self.assertNotIn(TOLD, self.feed(b"unread\n", "-n", 2, "--stdin", "none", "--", *words)[1])

    def test_nobody_can_write_to_it(self):
        _, err = self.feed(b"", "-n", 2, "--", "sh", "-c", "! (echo x > /dev/stdin) 2> /dev/null && ! (echo x >&0) 2> /dev/null")
        self.assertEqual(b"", err)

    def test_a_rank_that_there_is_not(self):
        for rank, words in (("2", b"--stdin 2: there are 2 workers, ranks 0 to 1"), ("-2", b"RANK|all|none"), ("some", b"RANK|all|none")):
            with self.subTest(rank):
                _, err = self.feed(b"", "-n", 2, "--stdin", rank, "--", "true", status=2)
                self.assertIn(words.replace(b"--stdin 2", b"stdin 2"), err)
                self.assertFalse(os.path.exists(self.storage))


class Given(InputCase):
    def test_one_rank_gets_it(self):
        out, err = self.feed(b"one\ntwo", "-n", 3, "--stdin", 1, "--", "sh", "-c", "[ $RANK != 1 ] || cat")
        self.assertEqual((b"[rank 1] one\n[rank 1] two\n", b""), (out, err))

    def test_exact_and_whole(self):
        """More than any buffer holds, from a pipe and from a file."""
        path = self.write("big", os.urandom(1 << 20) * 100)
        with open(path, "rb") as file:
            digest = hashlib.md5(file.read()).hexdigest().encode()
        for how in ("cat big | %s", "%s < big"):
            with self.subTest(how):
                words = " ".join("'%s'" % word for word in self.command("--stdin", 0, "--", sys.executable, "-S", "-c", SUM.replace("'", "'\\''")))
                out = subprocess.run(["sh", "-c", how % words], cwd=self.place, env=self.environment, capture_output=True, timeout=180, check=True)
                self.assertEqual((b"[rank 0] " + digest + b"\n", b""), (out.stdout, out.stderr))

    def test_all_get_all_of_it(self):
        data = os.urandom(5 << 20)
        out, _ = self.feed(data, "-n", 4, "--stdin", "all", "--", sys.executable, "-S", "-c", SUM)
        digest = hashlib.md5(data).hexdigest()
        self.assertEqual(["[rank %d] %s" % (rank, digest) for rank in range(4)], sorted(out.decode().splitlines()))

    def test_who_closes_it_or_ends_is_not_waited_for(self):
        data = os.urandom(5 << 20)
        script = "import os, sys\nif os.environ['RANK'] == '0': sys.exit()\n" \
                 "if os.environ['RANK'] == '1': os.close(0)\nelse: " + SUM.replace("import hashlib, sys; ", "import hashlib; ")
        out, _ = self.feed(data, "-n", 3, "--stdin", "all", "--", sys.executable, "-S", "-c", script)
        self.assertEqual("[rank 2] %s\n" % hashlib.md5(data).hexdigest(), out.decode())

    def test_an_empty_one(self):
        self.assertEqual((b"[rank 0] 0\n", b""), self.feed(b"", "--stdin", 0, "--", "wc", "-c"))

    def test_a_worker_that_never_reads(self):
        """It keeps the others, at the slowest one's pace; what nobody takes waits in its pipe, and in no memory of ours."""
        process = subprocess.Popen(self.command("-n", 2, "--stdin", "all", "--", "sh", "-c",
                                                "[ $RANK = 1 ] || exec cat > got; while [ ! -e go ]; do sleep 0.01; done"),
                                   cwd=self.place, env=self.environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        os.set_blocking(process.stdin.fileno(), False)
        sent = [0]

        def fill():
            try:
                sent[0] += os.write(process.stdin.fileno(), bytes(1 << 20))
            except BlockingIOError:
                pass
            return sent[0]

        self.wait_until_still(lambda: [fill()])
        self.assertLess(sent[0], 2 << 20)
        self.assertLess(sum(map(peak_kib, [process.pid, *agents(process.pid)])), MEMORY_LIMIT_KIB)
        process.stdin.close()
        process.stdin = None
        self.write("go", "")
        _, err = process.communicate(timeout=180)
        self.assertEqual((0, b""), (process.returncode, err))
        self.assertEqual(sent[0], os.path.getsize(os.path.join(self.place, "got")))

    def test_another_attempt_reads_on(self):
        """What the first one has read is gone, which is told."""
        script = "read line; echo $line; exit $((TRAINYARD_ATTEMPT < 2))"
        process = subprocess.Popen(self.command("--max-failures", 1, "--stdin", 0, "--", "sh", "-c", script), cwd=self.place, env=self.environment,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(b"first\n")
        process.stdin.flush()
        self.assertEqual(b"[rank 0] first\n", process.stdout.readline())
        while b"are gone" not in (line := process.stderr.readline()):
            self.assertNotEqual(b"", line)
        self.assertIn(b"6 bytes of standard input are gone", line)
        out, _ = process.communicate(b"second\n", timeout=180)
        self.assertEqual((b"[rank 0] second\n", 0), (out, process.returncode))

    def test_a_terminal_and_its_end(self):
        terminal = Terminal(self, self.command("--stdin", 0, "--", "sh", "-c", "echo ready; cat; echo over"))
        terminal.wait_for(lambda screen: "[rank 0] ready" in screen.lines)
        terminal.type(b"typed\n")
        terminal.wait_for(lambda screen: "[rank 0] typed" in screen.lines)
        terminal.type(b"\x04")
        self.assertEqual(0, terminal.finish())
        self.assertIn("[rank 0] over", terminal.screen.lines)

    def test_it_is_not_waited_for_in_the_end(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, writer)
        process = subprocess.Popen(self.command("--stdin", 0, "--", "sh", "-c", "read line; echo $line"), cwd=self.place, env=self.environment,
                                   stdin=reader, stdout=subprocess.PIPE)
        os.close(reader)
        os.write(writer, b"line\n")
        self.assertEqual(b"[rank 0] line\n", process.communicate(timeout=180)[0])
        self.assertEqual(0, process.returncode)

    def test_interrupted_while_it_reads(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, writer)
        process = subprocess.Popen(self.command("--stdin", 0, "--", "sh", "-c", "echo ready; cat"), cwd=self.place, env=self.environment,
                                   stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        os.close(reader)
        self.assertEqual(b"[rank 0] ready\n", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=180)
        self.assertEqual(130, process.returncode)

    def test_the_mode_of_the_callers_descriptor_stays(self):
        reader, writer = os.pipe()
        os.close(writer)
        subprocess.run(self.command("--stdin", 0, "--", "cat"), cwd=self.place, env=self.environment, stdin=reader, timeout=180, check=True)
        self.assertTrue(os.get_blocking(reader))
        os.close(reader)


if __name__ == "__main__":
    main()
