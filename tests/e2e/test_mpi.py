"""`--framework mpi`: programs of MPICH (PMI-1) and of Open MPI (PMIx) meet through the run's store; what is not served is told."""

import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

from harness import main
from runs import RunCase, children

PROGRAM = r"""
#include <mpi.h>
#include <signal.h>
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
    for (int i = 0; i < 10; i++) /* ranks that poll, more than there are processors */
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("sum %d of %d\n", sum, size);
    fflush(stdout);
    if (argc > 1) MPI_Barrier(MPI_COMM_WORLD); /* all have said it */
    if (argc > 1 && strcmp(argv[1], "abort") == 0 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
    if (argc > 1 && strcmp(argv[1], "kill") == 0 && rank == 1 && getenv("TRAINYARD_ATTEMPT")[0] == '1') raise(SIGKILL);
    if (argc > 1 && strcmp(argv[1], "leave") == 0 && rank == atoi(argv[2])) _exit(0);
    if (argc > 3) MPI_Barrier(MPI_COMM_WORLD); /* never comes */
    if (argc > 1 && strcmp(argv[1], "wait") == 0) {
        char name[32];
        snprintf(name, sizeof name, "ready.%d", rank);
        fclose(fopen(name, "w"));
        sleep(100000);
    }
    if (argc > 1 && strcmp(argv[1], "leave") != 0) MPI_Barrier(MPI_COMM_WORLD);
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
    @classmethod
    def setUpClass(cls):
        """The program, built by each of the two once."""
        cls.built = tempfile.mkdtemp(prefix="trainyard-test-")
        cls.addClassCleanup(shutil.rmtree, cls.built, True)
        source = os.path.join(cls.built, "program.c")
        with open(source, "w") as file:
            file.write(PROGRAM)
        for compiler in ("mpicc.mpich", "mpicc.openmpi"):
            subprocess.run([compiler, "-o", os.path.join(cls.built, compiler), source], check=True, timeout=120)

    def program(self, compiler):
        return os.path.join(self.built, compiler)

    def run_mpi(self, *args, **more):
        return self.finish(self.start_run("--framework", "mpi", *args, **more))

    def by_hand(self, source, n=1, status=0):
        path = self.write("work/by_hand.py", BY_HAND + source)
        return self.assert_status(status, self.run_mpi("-n", n, "--no-prefix", "--", sys.executable, "-S", path))

    def test_eight_ranks(self):
        for compiler in ("mpicc.mpich", "mpicc.openmpi"):
            with self.subTest(compiler):
                finished = self.run_mpi("-n", 8, "--no-prefix", "--progress", "none", "--", self.program(compiler))
                self.assertEqual(["sum 36 of 8"] * 8, self.assert_status(0, finished).out.splitlines(), repr(finished))
                self.assertEqual("", finished.err)
                self.assert_clean()

    def test_an_abort_ends_all(self):
        finished = self.assert_status(137, self.run_mpi("-n", 4, "--", self.program("mpicc.mpich"), "abort"))
        self.assertIn("first cause: rank 1 was killed", finished.err)
        self.assertIn("    | Abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7)", finished.err)
        self.assert_clean()
        finished = self.assert_status(7, self.run_mpi("-n", 4, "--", self.program("mpicc.openmpi"), "abort"))
        self.assertIn("first cause: rank 1 exited with code 7", finished.err)
        self.assertIn("    | MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD", finished.err)
        self.assert_clean()

    def test_a_death_ends_all_and_the_next_attempt_meets_anew(self):
        for compiler in ("mpicc.mpich", "mpicc.openmpi"):
            with self.subTest(compiler):
                finished = self.run_mpi("-n", 4, "--max-failures", 1, "--", self.program(compiler), "kill")
                self.assert_status(0, finished)
                self.assertEqual(8, finished.out.count("sum 10 of 4"), repr(finished))
                self.assert_clean()

    def test_one_that_leaves_without_a_word_has_failed(self):
        """Whether the others wait for it or not; as with Open MPI's mpirun."""
        for compiler in ("mpicc.mpich", "mpicc.openmpi"):
            for rank, waits in ((0, []), (1, ["waits"])):
                with self.subTest(compiler, rank=rank):
                    finished = self.run_mpi("-n", 2, "--progress", "none", "--", self.program(compiler), "leave", rank, *waits)
                    self.assertIn("rank %d exited with code 1, which stands for 0 without MPI_Finalize" % rank,
                                  self.assert_status(1, finished).err)
        finished = self.run_mpi("-n", 2, "--progress", "none", "--", self.program(compiler), "leave", 7)
        self.assertEqual("", self.assert_status(0, finished).err)
        self.assert_clean()

    def test_several_nodes(self):
        cluster = self.write("cluster.yaml", "nodes:\n  - name: n[1-3]\n    resources: {CPU: 2}\n")
        finished = self.run_mpi("-n", 6, "--no-prefix", "--cluster", cluster, "--", self.program("mpicc.openmpi"), "barrier")
        os.unlink(cluster)
        self.assertEqual(["sum 21 of 6"] * 6, self.assert_status(0, finished).out.splitlines(), repr(finished))
        self.assert_clean()

    def test_ranks_of_a_node_share_memory(self):
        finished = self.run_mpi("-n", 4, "--no-prefix", "--env", "OMPI_MCA_btl=self,vader", "--", self.program("mpicc.openmpi"))
        self.assertEqual(["sum 10 of 4"] * 4, self.assert_status(0, finished).out.splitlines(), repr(finished))

    def test_mpi4py(self):
        """That of Debian, for Debian's Python."""
        path = self.write("work/program.py", "from mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
                          "print('sum', world.allreduce(world.Get_rank() + 1), 'of', world.Get_size())\n")
        finished = self.run_mpi("-n", 4, "--no-prefix", "--", "/usr/bin/python3", path)
        self.assertEqual(["sum 10 of 4"] * 4, self.assert_status(0, finished).out.splitlines(), repr(finished))

    def test_whatever_is_killed_nothing_is_left(self):
        """The first rank of a node, with which its server goes; the agent; the driver."""
        for who in ("rank", "agent", "driver"):
            with self.subTest(who):
                self.forget()
                process = self.start_run("--framework", "mpi", "-n", 2, "--", self.program("mpicc.openmpi"), "wait")
                self.ready(process, 2)
                agent = self.agents(process)[0]
                first = next(pid for pid in children(agent) if b"RANK=0" in self.variables(pid))
                os.kill({"rank": first, "agent": agent, "driver": process.pid}[who], signal.SIGKILL)
                finished = self.finish(process)
                self.assertEqual({"rank": 137, "agent": 5, "driver": 137}[who], finished.status, repr(finished))
                self.assert_clean(void=True)

    def variables(self, pid):
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                return file.read().split(b"\0")
        except OSError:
            return []

    def test_alone_it_is_warned_of(self):
        """One of Open MPI: several that are each alone make their session's directory at once, and one of them may fail at it. Its server,
        orted, ends when it sees that the rank has, which may be a moment too late not to be told of."""
        for compiler, n in (("mpicc.mpich", 2), ("mpicc.openmpi", 1)):
            with self.subTest(compiler):
                finished = self.finish(self.start_run("-n", n, "--no-prefix", "--progress", "none", "--", self.program(compiler)))
                self.assertEqual(["sum 1 of 1"] * n, self.assert_status(0, finished).out.splitlines())
                finished.err = re.sub(r".*left 1 process: orted .*\n", "", finished.err)
                self.assert_line(finished, "run", "warning", "linked to MPI", "--framework mpi")

    def test_without_libpmix_open_mpi_is_refused(self):
        command = self.command_for_all()
        os.unlink(os.path.join(self.copy, "trainyard-modules", "pmix.so"))
        self.environment["PATH"] = self.copy + ":" + self.environment["PATH"]
        for compiler, status in (("mpicc.openmpi", 127), ("mpicc.mpich", 0)):
            done = subprocess.run([command, "run", "--storage-path", self.storage, "--framework", "mpi", "-n", "2", "--num-cpus", "2",
                                   "--", self.program(compiler)], capture_output=True, text=True, timeout=180, env=self.environment, cwd=self.work)
            self.assertEqual(status, done.returncode, done)
            if status != 0:
                self.assertIn("is linked to Open MPI, which wants PMIx, and there is none: module pmix is not installed", done.stderr)
                self.assertIn("install libpmix2", done.stderr)
        self.assert_clean()

    def test_a_launcher_around_the_run_is_not_the_workers(self):
        """As with srun --mpi=pmix; what is a parameter of libpmix stays."""
        outer = {"PMIX_NAMESPACE": "slurm.pmix.1.0", "PMIX_RANK": "0", "PMIX_SERVER_URI41": "pmix-server.1;tcp4://127.0.0.1:1",
                 "PMIX_MCA_gds": "hash", "PMI_FD": "9", "PMI_RANK": "0", "SLURM_JOBID": "1", "SLURM_NODELIST": "here"}
        finished = self.assert_status(0, self.finish(self.start_run("--no-prefix", "--", "env", env=outer)))
        self.assertEqual(["PMIX_MCA_gds=hash"], [line for line in finished.out.splitlines() if line.startswith(("PMI", "OMPI_MCA_s"))])
        finished = self.finish(self.start_run("--framework", "mpi", "-n", 2, "--no-prefix", "--", self.program("mpicc.openmpi"), env=outer))
        self.assertEqual(["sum 3 of 2"] * 2, self.assert_status(0, finished).out.splitlines(), repr(finished))

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
