"""`--framework mpi`: programs of MPICH meet through the run's store; what is not served is told."""

import os
import signal
import struct
import subprocess
import sys

from harness import main
from runs import RunCase

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int rank, size, sum = 0, mine, seen = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mine = rank + 1;
    for (int i = 0; i < 100; i++)
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("sum %d of %d\n", sum, size);
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "abort") == 0 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
    if (argc > 1 && strcmp(argv[1], "kill") == 0 && rank == 1 && getenv("TRAINYARD_ATTEMPT")[0] == '1') abort();
    if (argc > 1) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""

# What a worker says over PMI_FD, a line each, and what it hears; PMI-1 by hand.
BY_HAND = r"""
import os, socket, sys
rank, size = os.environ["PMI_RANK"], os.environ["PMI_SIZE"]
assert (rank, size) == (os.environ["RANK"], os.environ["WORLD_SIZE"])
pmi = socket.socket(fileno=int(os.environ["PMI_FD"])).makefile("rw")
def ask(line):
    pmi.write(line + "\n")
    pmi.flush()
    return pmi.readline().rstrip("\n")
"""


class Mpi(RunCase):
    def program(self, compiler):
        source = self.write("work/program.c", PROGRAM)
        path = os.path.join(self.work, "program-" + compiler)
        subprocess.run([compiler, "-o", path, source], check=True, timeout=120)
        return path

    def run_mpi(self, *args, **more):
        return self.finish(self.start_run("--framework", "mpi", *args, **more))

    def by_hand(self, source, n=1, status=0):
        path = self.write("work/by_hand.py", BY_HAND + source)
        return self.assert_status(status, self.run_mpi("-n", n, "--no-prefix", "--", sys.executable, "-S", path))

    def test_eight_ranks_of_mpich(self):
        finished = self.run_mpi("-n", 8, "--no-prefix", "--", self.program("mpicc.mpich"))
        self.assertEqual(["sum 36 of 8"] * 8, self.assert_status(0, finished).out.splitlines(), repr(finished))
        self.assertNotIn("MPI", finished.err)
        self.assert_clean()

    def test_an_abort_and_a_death_end_all(self):
        program = self.program("mpicc.mpich")
        finished = self.assert_status(137, self.run_mpi("-n", 4, "--", program, "abort"))
        self.assertIn("first cause: rank 1 was killed", finished.err)
        self.assertIn("    | Abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7)", finished.err)
        self.assert_clean()
        finished = self.run_mpi("-n", 4, "--max-failures", 1, "--", program, "kill")
        self.assert_status(0, finished)
        self.assertEqual(8, finished.out.count("sum 10 of 4"))
        self.assert_clean()

    def test_alone_it_is_warned_of(self):
        for compiler in ("mpicc.mpich", "mpicc.openmpi"):
            with self.subTest(compiler):
                finished = self.finish(self.start_run("-n", 2, "--no-prefix", "--progress", "none", "--", self.program(compiler)))
                self.assertEqual(["sum 1 of 1"] * 2, self.assert_status(0, finished).out.splitlines())
                self.assert_line(finished, "run", "warning", "linked to MPI", "--framework mpi")

    def test_open_mpi_is_refused(self):
        finished = self.assert_status(127, self.run_mpi("-n", 2, "--", self.program("mpicc.openmpi")))
        self.assertIn("is linked to Open MPI, which wants PMIx", finished.err)

    def test_the_lines(self):
        finished = self.by_hand(r"""
assert ask("cmd=init pmi_version=1 pmi_subversion=1") == "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
assert ask("cmd=get_maxes ").startswith("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=")
assert ask("cmd=get_universe_size") == "cmd=universe_size size=3"
name = ask("cmd=get_my_kvsname").partition("kvsname=")[2]
assert ask("cmd=get kvsname=%s key=PMI_process_mapping" % name) == "cmd=get_result rc=0 msg=success value=(vector,(0,1,3))"
assert ask("cmd=get kvsname=%s key=none" % name).startswith("cmd=get_result rc=-1 msg=key_not_found")
for turn in range(20):
    assert ask("cmd=put kvsname=%s key=card-%s-%d value=%s at=%s" % (name, rank, turn, "x" * 900, rank)) == "cmd=put_result rc=0 msg=success"
    assert ask("cmd=barrier_in") == "cmd=barrier_out"
    for other in range(3):
        assert ask("cmd=get kvsname=%s key=card-%d-%d" % (name, other, turn)).endswith("value=%s at=%d" % ("x" * 900, other))
assert ask("mcmd=spawn\nnprocs=1\nexecname=x\nendcmd").startswith("cmd=spawn_result rc=-1")
assert ask("cmd=finalize") == "cmd=finalize_ack"
print("well")
""", n=3)
        self.assertEqual(["well"] * 3, finished.out.splitlines())

    def test_what_is_no_line_ends_the_talk_alone(self):
        for name, what in (("unknown", '"cmd=dance\\n"'), ("long", '"x" * 100000'), ("bytes", '"\\0\\x01cmd=put\\n" * 10 + "cmd=x\\n"')):
            with self.subTest(name):
                finished = self.by_hand("pmi.write(%s)\ntry:\n    pmi.flush()\n    assert pmi.read() == ''\nexcept OSError:\n    pass\nprint('here')\n" % what)
                self.assertEqual("here\n", finished.out)

    def test_a_program_that_is_not_there(self):
        finished = self.assert_status(127, self.run_mpi("--", "no-such-program"))
        self.assertIn("no-such-program: No such file or directory", finished.err)

    def test_a_stop_reaches_the_program(self):
        process = self.start_run("--framework", "mpi", "-n", 2, "--", "sh", "-c", ": > ready.$RANK; sleep 100000")
        self.ready(process, 2)
        process.send_signal(signal.SIGINT)
        self.assert_status(130, self.finish(process))
        self.assert_clean()

    def test_files_that_are_no_program_say_nothing(self):
        """A script, an empty file, and ELF files whose numbers lie."""
        with open("/bin/true", "rb") as file:
            true = bytearray(file.read())
        lies = {"empty": b"", "script": b"#!/bin/sh\ntrue\n", "cut": true[:100]}
        for offset in (32, 54, 56):  # e_phoff, e_phentsize, e_phnum
            lie = bytearray(true)
            struct.pack_into("<Q" if offset == 32 else "<H", lie, offset, 2 ** 64 - 8 if offset == 32 else 0xFFFF)
            lies["lie-%d" % offset] = lie
        for name, content in lies.items():
            with self.subTest(name):
                path = os.path.join(self.work, name)
                with open(path, "wb") as file:
                    file.write(content)
                os.chmod(path, 0o755)
                self.assertNotIn("MPI", self.finish(self.start_run("--", path)).err)


if __name__ == "__main__":
    main()
