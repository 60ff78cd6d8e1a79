"""`trainyard torchrun`: torchrun's command line, what of it workers find and the terminal shows, and what is refused by name."""

import json
import os
import socket
import sys

from harness import Case, free_port, main

# Each worker tells in a file of its own what it found.
TELL = r"""
import json, os, sys
with open(os.path.join(os.environ["TELL"], os.environ["RANK"]), "w") as file:
    json.dump({"argv": sys.argv, "name": __name__, "env": dict(os.environ), "flags": sys.flags.unbuffered if hasattr(sys.flags, "unbuffered") else 1,
               "executable": sys.executable}, file)
"""

SPEAK = r"""
import os, sys
print("out", os.environ["LOCAL_RANK"])
print("err", os.environ["LOCAL_RANK"], file=sys.stderr)
"""

# Saves a checkpoint and waits; goes on from it to the end.
class TorchrunCase(Case):
    def setUp(self):
        super().setUp()
        self.environment = {k: v for k, v in self.environment.items() if not k.startswith(("PET_", "TORCH")) and k != "OMP_NUM_THREADS"}
        self.environment["PYTHON_EXEC"] = sys.executable
        self.tell = os.path.join(self.place, "tell")
        os.mkdir(self.tell)

    def torchrun(self, *args, env=None, **more):
        return self.trainyard("torchrun", "--storage-path", self.storage, *args, env={"TELL": self.tell, **(env or {})}, **more)

    def told(self, *args, env=None, **more):
        """What each rank found."""
        for name in os.listdir(self.tell):
            os.unlink(os.path.join(self.tell, name))
        self.assert_status(0, self.torchrun(*args, env=env, **more))
        found = []
        for name in sorted(os.listdir(self.tell), key=int):
            with open(os.path.join(self.tell, name)) as file:
                found.append(json.load(file))
        return found

    def script(self, text=TELL, name="script.py"):
        return self.write(name, text)

    def lines(self, *args):
        finished = self.assert_status(0, self.torchrun(*args, self.script(SPEAK, "speak.py")))
        return sorted(finished.out.splitlines()), sorted(finished.err.splitlines())


class CommandLine(TorchrunCase):
    def test_every_spelling_of_a_name(self):
        script = self.script()
        for words in (["--nproc-per-node", "2"], ["--nproc_per_node", "2"], ["--nproc_per_node=2"], ["--nproc-per-node=2"],
                      ["--nproc", "2"], ["--nproc_per=2"]):
            with self.subTest(words):
                self.assertEqual(2, len(self.told(*words, script)))

    def test_what_follows_the_script_is_its_own(self):
        script = self.script()
        found = self.told("--nnodes=1", "--nproc_per_node=1", script, "--nproc_per_node=7", "--x_y", "-m", "--", "a b")
        self.assertEqual([[script, "--nproc_per_node=7", "--x_y", "-m", "--", "a b"]], [one["argv"] for one in found])
        found = self.told("--nproc_per_node=1", "--", script, "--lr_rate=1")
        self.assertEqual([script, "--lr_rate=1"], found[0]["argv"])

    def test_the_whole_command_line_of_one_machine(self):
        found = self.told("--nnodes=1:1", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--rdzv_id=job-7",
                          "--rdzv_conf=timeout=900,read_timeout=60", "--max_restarts=3", "--monitor_interval=0.5", "--start_method=fork",
                          "--event_log_handler=null", "--role=trainer", "--node_rank=0", "--signals_to_handle=SIGTERM,SIGINT",
                          "--shutdown_timeout=7", "--numa-binding=node", "--local_ranks_filter=0,1", "--redirects=0", "--tee=0:3,1:1",
                          self.script())
        for rank, one in enumerate(found):
            expected = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
                "GROUP_WORLD_SIZE": "1", "ROLE_RANK": str(rank), "ROLE_NAME": "trainer", "ROLE_WORLD_SIZE": "2",
                "MASTER_ADDR": "localhost", "TORCHELASTIC_RUN_ID": "job-7", "TORCHELASTIC_MAX_RESTARTS": "3",
                "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT", "OMP_NUM_THREADS": "1",
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            }
            self.assertEqual(expected, {name: one["env"].get(name) for name in expected})

    def test_variables_stand_for_options_which_win(self):
        script = self.script()
        self.assert_usage(self.torchrun(script, env={"PET_STANDALONE": "yes"}), "torchrun", "PET_STANDALONE", "standalone")
        env = {"PET_NPROC_PER_NODE": "3", "PET_MAX_RESTARTS": "2", "PET_STANDALONE": "1", "PET_MODULE": "0", "PET_RDZV_ID": "x",
               "PET_ROLE": "worker"}
        found = self.told(script, env=env)
        self.assertEqual((3, "2", "worker"),
                         (len(found), found[0]["env"]["TORCHELASTIC_MAX_RESTARTS"], found[0]["env"]["ROLE_NAME"]))
        self.assertEqual(2, len(self.told("--nproc-per-node=2", script, env=env)))

    def test_more_workers_than_cores(self):
        cores = len(os.sched_getaffinity(0))
        script = self.script()
        self.assertEqual(2 * cores + 1, len(self.told("--nproc-per-node", 2 * cores + 1, script)))
        for word in ("auto", "cpu"):
            self.assertEqual(cores, len(self.told("--nproc-per-node", word, script)))

    def test_a_lone_worker_has_all_threads(self):
        self.assertNotIn("OMP_NUM_THREADS", self.told(self.script())[0]["env"])
        self.assertEqual("5", self.told("--nproc-per-node=2", self.script(), env={"OMP_NUM_THREADS": "5"})[0]["env"]["OMP_NUM_THREADS"])

    def test_modules_programs_and_run_path(self):
        self.assert_usage(self.torchrun("--no-python", "-m", "mine"), "torchrun", "--no-python", "--module")
        self.script(name="mine.py")
        for words in (["-m", "mine", "a"], ["--module", "mine", "a"], ["--run-path", os.path.join(self.place, "mine.py"), "a"]):
            with self.subTest(words):
                one = self.told(*words, env={"PYTHONPATH": self.place})[0]
                self.assertEqual(("__main__", "a", sys.executable), (one["name"], one["argv"][-1], one["executable"]))
        finished = self.assert_status(0, self.torchrun("--no_python", "--nproc_per_node=2", "sh", "-c", "echo $RANK"))
        self.assertEqual(["0", "1"], sorted(finished.out.split()))

    def test_the_interpreter_of_the_path(self):
        finished = self.assert_status(4, self.torchrun("train.py", env={"PYTHON_EXEC": None, "PATH": self.tell}))
        self.assert_line(finished, "torchrun", "python3", "PYTHON_EXEC")
        self.assertFalse(os.path.exists(self.storage))
        place = os.path.join(self.place, "bin")
        os.mkdir(place)
        stand_in = os.path.join(place, "python3")
        with open(stand_in, "w") as file:
            file.write("#!/bin/sh\necho mine \"$@\"\n")
        os.chmod(stand_in, 0o755)
        finished = self.torchrun("train.py", env={"PYTHON_EXEC": None, "PATH": place + ":/usr/bin:/bin"})
        self.assertEqual("mine -u train.py\n", self.assert_status(0, finished).out)

    def test_address_and_port(self):
        script = self.script()
        with socket.socket() as taken:
            taken.bind(("", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.assert_usage(self.torchrun("--master-port", port, script), "torchrun", str(port), "in use", "--master-port")
        port = free_port()
        for words, address in ((["--master-port", port], "127.0.0.1"), (["--master_addr", "localhost", "--master_port", port], "localhost"),
                               (["--rdzv-endpoint", "127.0.0.2:%d" % port], "127.0.0.2"), (["--rdzv-endpoint", "[::1]:%d" % port], "::1")):
            with self.subTest(words):
                env = self.told("--nproc-per-node=2", *words, script)[1]["env"]
                self.assertEqual((address, str(port)), (env["MASTER_ADDR"], env["MASTER_PORT"]))
        env = self.told("--standalone", "--master-port", port, "--rdzv-id=x", script)[0]["env"]
        self.assertNotEqual((str(port), "x"), (env["MASTER_PORT"], env["TORCHELASTIC_RUN_ID"]))

    def test_devices(self):
        finished = self.torchrun("--nproc-per-node=gpu", self.script())
        self.assert_usage(finished, "torchrun", "--nproc-per-node gpu", "no GPU")

    def test_restarts(self):
        script = 'echo $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 2 ]'
        finished = self.assert_status(0, self.torchrun("--max_restarts=2", "--no-python", "sh", "-c", script))
        self.assertEqual(["0", "1", "2"], finished.out.split())
        self.assert_status(1, self.torchrun("--max-restarts=1", "--no-python", "sh", "-c", script))

    def test_the_status_is_that_of_the_worker(self):
        finished = self.assert_status(7, self.torchrun("--nproc-per-node=2", "--no-python", "sh", "-c", "exit 7"))
        self.assertIn("trainyard torchrun: first cause: rank", finished.err)

    def test_logs(self):
        place = os.path.join(self.place, "logs of mine")
        finished = self.trainyard("torchrun", "--log_dir", place, "--name", "a", self.script(SPEAK))
        self.assert_status(0, finished)
        with open(os.path.join(place, "a", "logs", "rank-0.log")) as file:
            self.assertEqual(["err 0", "out 0"], sorted(file.read().splitlines()))


class Shown(TorchrunCase):
    def test_lines_are_as_they_are(self):
        self.assertEqual((["out 0", "out 1"], ["err 0", "err 1"]), self.lines("--nproc-per-node=2"))

    def test_redirected_streams_are_in_the_logs_alone(self):
        self.assertEqual(([], []), self.lines("--nproc-per-node=2", "--redirects=3", "--name=all"))
        with open(os.path.join(self.storage, "all", "logs", "rank-1.log")) as file:
            self.assertEqual(["err 1", "out 1"], sorted(file.read().splitlines()))
        self.assertEqual((["out 0", "out 1"], []), self.lines("--nproc-per-node=2", "-r", "2"))
        self.assertEqual((["out 1"], ["err 0"]), self.lines("--nproc-per-node=2", "-r=0:1,1:2"))
        self.assertEqual((["out 1"], ["err 1"]), self.lines("--nproc-per-node=2", "-r0:3"))

    def test_teed_streams_are_shown(self):
        self.assertEqual((["[rank 0] out 0", "[rank 1] out 1"], ["[rank 1] err 1"]),
                         self.lines("--nproc-per-node=2", "--redirects=3", "--tee", "0:1,1:3"))

    def test_some_local_ranks(self):
        self.assertEqual((["out 1"], ["err 1"]), self.lines("--nproc-per-node=3", "--local-ranks-filter=1"))
        self.assertEqual((["out 0", "out 2"], ["err 0", "err 2"]), self.lines("--nproc-per-node=3", "--local_ranks_filter", "0,2"))


class Machines(TorchrunCase):
    """The same line on each of several machines, here several times on this one."""

    def setUp(self):
        super().setUp()
        self.meeting = "127.0.0.1:%d" % free_port()

    def machine(self, *args, script=None, env=None):
        return self.start("torchrun", "--storage-path", self.storage, *args, script or self.script(), env={"TELL": self.tell, **(env or {})})

    def machines(self, lines, **more):
        return [self.finish(one) for one in [self.machine(*line, **more) for line in lines]]

    def found(self, n):
        self.assertEqual(sorted(map(str, range(n))), sorted(os.listdir(self.tell)))
        made = []
        for rank in range(n):
            with open(os.path.join(self.tell, str(rank))) as file:
                made.append(json.load(file)["env"])
        return made

    def test_the_same_line_on_each(self):
        line = ("--nnodes=3", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=job-7", "--rdzv-endpoint=" + self.meeting)
        ended = self.machines([line] * 3)
        self.assertEqual([0, 0, 0], [one.status for one in ended], [one.err for one in ended])
        found = self.found(6)
        for rank, env in enumerate(found):
            expected = {"WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": str(rank % 2), "GROUP_RANK": str(rank // 2),
                        "GROUP_WORLD_SIZE": "3", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "6", "TORCHELASTIC_RUN_ID": "job-7",
                        "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": found[0]["MASTER_PORT"]}
            self.assertEqual(expected, {name: env.get(name) for name in expected})
        self.assertNotEqual(self.meeting, "127.0.0.1:" + found[0]["MASTER_PORT"])

    def test_by_rank_and_the_master(self):
        host, port = self.meeting.split(":")
        line = ("--nnodes=2", "--nproc-per-node=1", "--master-addr=" + host, "--master-port=" + port)
        ended = self.machines([(*line, "--node-rank=1"), (*line, "--node-rank=0")])
        self.assertEqual([0, 0], [one.status for one in ended], [one.err for one in ended])
        self.assertEqual(["0", "1"], [env["GROUP_RANK"] for env in self.found(2)])

    def test_by_variables(self):
        env = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": self.meeting}
        ended = self.machines([(), ()], env=env)
        self.assertEqual([0, 0], [one.status for one in ended], [one.err for one in ended])
        self.assertEqual(["0", "0", "1", "1"], [env["GROUP_RANK"] for env in self.found(4)])

    def test_as_many_as_each_machine_was_asked_for(self):
        """More than it has cores, and all on one where the other may not come."""
        line = ("--nproc-per-node=40", "--rdzv-backend=c10d", "--rdzv-endpoint=" + self.meeting, "--no-python")
        tell = self.write("tell.sh", "#!/bin/sh\n: >$TELL/$RANK-$GROUP_RANK-$LOCAL_RANK-$WORLD_SIZE\n")
        os.chmod(tell, 0o755)
        ended = self.machines([("--nnodes=1:2", *line)] * 2, script=tell)
        self.assertEqual([0, 0], [one.status for one in ended], [one.err for one in ended])
        self.assertEqual(sorted(f"{rank}-{rank // 40}-{rank % 40}-80" for rank in range(80)), sorted(os.listdir(self.tell)))
        for name in os.listdir(self.tell):
            os.unlink(os.path.join(self.tell, name))
        self.assertEqual(0, self.machines([("--nnodes=1:2", *line)], script=tell)[0].status)
        self.assertEqual(sorted(f"{rank}-0-{rank}-40" for rank in range(40)), sorted(os.listdir(self.tell)))

    def test_each_ends_with_the_status_of_the_run(self):
        line = ("--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + self.meeting)
        ended = self.machines([line] * 2, script=self.script("import os, sys; sys.exit(7 * (os.environ['RANK'] == '3'))"))
        self.assertEqual([7, 7], [one.status for one in ended], [one.err for one in ended])

    def test_one_too_many(self):
        gate = os.path.join(self.place, "gate")
        os.mkfifo(gate)
        line = ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + self.meeting)
        script = self.script(f"open({gate!r}).read()")
        two = [self.machine(*line, script=script) for _ in range(2)]
        opened = os.open(gate, os.O_WRONLY)  # a worker is there, and so all machines
        third = self.finish(self.machine(*line, script=script))
        self.assert_status(2, third)
        self.assertIn("all 2 nodes are there already", third.err)
        os.close(opened)
        for one in two:
            while one.poll() is None:  # the other worker may be late
                try:
                    os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
                except OSError:
                    pass
            self.assert_status(0, self.finish(one))

    def test_who_is_missing(self):
        line = ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + self.meeting)
        alone = self.finish(self.machine(*line, "--rdzv-conf=join_timeout=1"))
        self.assert_status(4, alone)
        self.assertIn("1 of 2 nodes", alone.err)
        guest = self.finish(self.machine(*line, "--rdzv-conf=join_timeout=1,is_host=False"))
        self.assert_status(4, guest)
        self.assertIn("a node without a rank yet: the controller at " + self.meeting, guest.err)
        self.assertFalse(os.listdir(self.tell))


class Refused(TorchrunCase):
    def test_machines(self):
        script = self.script()
        meeting = ("--nnodes=2", "--rdzv-endpoint=127.0.0.1:29411")
        for words, told in {
            ("--nnodes=2", "--rdzv-endpoint=192.0.2.1:29400"): ("--rdzv-endpoint", "TRAINYARD_RUN_KEY"),
            ("--nnodes=2", "--master-addr=192.0.2.1"): ("--master-addr", "TRAINYARD_RUN_KEY"),
            ("--nnodes=2", "--rdzv-endpoint=127.0.0.1:0"): ("--rdzv-endpoint", "port"), ("--nnodes=2", "--standalone"): ("--standalone", "--nnodes 2"),
            (*meeting, "--rdzv-backend=etcd-v2"): ("--rdzv-backend etcd-v2", "c10d"), (*meeting, "--node-rank=2"): ("--node-rank 2", "0 to 1"),
            (*meeting, "--rdzv-conf=is_host=maybe"): ("--rdzv-conf", "is_host"), (*meeting, "--rdzv-conf=join_timeout=0"): ("--rdzv-conf", "join_timeout"),
            (*meeting, "--nproc-per-node=6000000"): ("6000000 workers on each of 2",), (*meeting, "--key-file=/nowhere"): ("/nowhere",),
        }.items():
            with self.subTest(words):
                self.assert_usage(self.torchrun(*words, script), "torchrun", *told)
        self.assertFalse(os.path.exists(self.storage))

    def test_by_name_and_nothing_made(self):
        script = self.script()
        cases = {
            ("--nnodes=2",): ("--nnodes 2", "1:2"), ("--nnodes=2:4",): ("--nnodes", "1:4"), ("--nnodes=0",): ("--nnodes", "MIN:MAX"),
            ("--nnodes=4:2",): ("--nnodes", "MIN:MAX"), ("--nnodes=1:",): ("--nnodes", "MIN:MAX"),
            ("--node-rank=1",): ("--node-rank 1", "machines"), ("--nproc-per-node=0",): ("--nproc-per-node", "auto"),
            ("--nproc-per-node=-1",): ("--nproc-per-node", "auto"), ("--nproc-per-node=xpu",): ("--nproc-per-node xpu", "gpu"),
            ("--nproc-per-node=99999999999999999999",): ("--nproc-per-node", "number"), ("--rdzv-backend=zookeeper",): ("--rdzv-backend", "c10d"),
            ("--rdzv-conf=a",): ("--rdzv-conf", "KEY=VALUE"), ("--rdzv-endpoint=h:x",): ("--rdzv-endpoint", "HOST:PORT"),
            ("--max-restarts=-1",): ("--max-restarts", "0"), ("--monitor-interval=0",): ("--monitor-interval", "seconds"),
            ("--start-method=thread",): ("--start-method", "forkserver"), ("--event-log-handler=console",): ("--event-log-handler", "journal"),
            ("--logs-specs=mine",): ("--logs-specs", "--redirects"), ("--duplicate-stdout-filters=a",): ("--duplicate-stdout-filters", "trainyard logs"),
            ("--duplicate_stderr_filters=a",): ("--duplicate-stderr-filters", "trainyard logs"), ("--numa-binding=socket",): ("--numa-binding", "node"),
            ("--signals-to-handle=TERM",): ("--signals-to-handle", "SIGTERM"), ("--signals-to-handle=SIGUSR1,SIGUSR2",): ("--signals-to-handle", "one"),
            ("--redirects=4",): ("--redirects", "3"), ("--redirects=0:1,1:x",): ("--redirects", "0:3,1:1"), ("--tee=",): ("--tee", "3"),
            ("--local-ranks-filter=a",): ("--local-ranks-filter", "0,1,2"), ("--master-port=65536",): ("--master-port", "65535"),
            ("--n=2",): ("--n",), ("--nprocs-per-node=2",): ("--nproc-per-node",),
        }
        for words, told in cases.items():
            with self.subTest(words):
                self.assert_usage(self.torchrun(*words, script), "torchrun", *told)
        self.assert_usage(self.torchrun("--nproc-per-node=2"), "torchrun", "which script")
        self.assertFalse(os.path.exists(self.storage))


if __name__ == "__main__":
    main()
