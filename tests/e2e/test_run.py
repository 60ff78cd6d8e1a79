"""`trainyard run`: exit statuses, what workers find in their environment and at MASTER_PORT, options, and starts in odd places."""

import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import unittest

from harness import COMMAND, Case, main
from runs import children, soak

PYTHON = sys.executable
NEVER = "100000"  # seconds that a worker would sleep if nobody ended it

# Rank 0 listens at MASTER_ADDR:MASTER_PORT as TCPStore and gRPC do (SO_REUSEADDR); all ranks send their number, all get the sum.
RENDEZVOUS = r"""
import os, socket, sys, time
names = sys.argv[1:3]
rank, size = (int(os.environ[name]) for name in names)
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
family = socket.getaddrinfo(*address)[0][0]
if rank == 0:
    server = socket.socket(family)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", address[1]))
    server.listen(size)
    peers = [server.accept()[0] for _ in range(size - 1)]
    total = sum(int(peer.recv(16)) for peer in peers)
    for peer in peers:
        peer.sendall(b"%d" % total)
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.005)
    peer.sendall(b"%d" % rank)
    total = int(peer.recv(16))
print("sum", total, flush=True)
"""


class RunCase(Case):
    def environments(self, *args, env=None, **more):
        """The environment of every rank, as the program found it."""
        place = os.path.join(self.place, "environments")
        shutil.rmtree(place, True)
        os.mkdir(place)
        dump = "env -0 > '%s'/$RANK" % place
        self.assert_status(0, self.run_workers(*args, "--", "sh", "-c", dump, env=env, **more))
        found = {}
        for name in os.listdir(place):
            with open(os.path.join(place, name), "rb") as file:
                entries = file.read().decode(errors="surrogateescape").split("\0")[:-1]
            found[int(name)] = dict(entry.split("=", 1) for entry in entries)
        return [found[rank] for rank in sorted(found)]

    def wait_for_files(self, process, *names):
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.place, name)) for name in names), process=process)


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read().decode(errors="surrogateescape")


class ExitStatus(RunCase):
    def test_every_code_of_a_worker_passes_through(self):
        for code in range(0, 256, 256 // soak("EXIT_CODES", 256)):
            finished = self.run_workers("--quiet", "--", "sh", "-c", "exit %d" % code)
            self.assert_status(code, finished)
            self.assertEqual(code != 0, "exited with code %d" % code in finished.err, repr(finished))

    def test_every_deadly_signal_is_128_and_its_number(self):
        harmless = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGSTOP, signal.SIGTSTP,
                    signal.SIGTTIN, signal.SIGTTOU}
        deadly = sorted(set(range(1, 32)) - harmless) + [34, 50, 64]
        for number in deadly:
            with self.subTest(number):
                finished = self.run_workers("--quiet", "--", "sh", "-c", "ulimit -c 0; kill -%d $$" % number)
                self.assert_status(128 + number, finished)
                self.assertIn("was killed by signal %d" % number, finished.err)

    def test_first_failure_decides_among_several(self):
        # The others end with another code when they are told to stop: that is no failure of theirs.
        script = ('trap "exit 9" TERM; : > ready.$RANK; while [ ! -e go ]; do sleep 0.01; done; '
                  '[ $RANK = 2 ] && exit 7; while :; do sleep 0.01; done')
        process = self.start("run", "--storage-path", self.storage, "-n", 4, "--num-cpus", 4, "--", "sh", "-c", script)
        self.wait_for_files(process, *("ready.%d" % rank for rank in range(4)))
        self.write("go", "")
        finished = self.assert_status(7, self.finish(process))
        self.assertIn("rank 2 exited with code 7", finished.err)
        self.assertIn("ranks 0-1,3 stopped when told to", finished.err)

    def test_late_failures_do_not_change_it(self):
        script = "[ $RANK = 0 ] && exit 5; trap 'kill -KILL $$' TERM; while :; do sleep 0.01; done"
        self.assert_status(5, self.run_workers("-n", 3, "--num-cpus", 3, "--", "sh", "-c", script))

    def test_a_rank_that_ends_well_waits_for_the_others(self):
        script = "[ $RANK = 0 ] && : > done && exit 0; while [ ! -e done ]; do sleep 0.01; done; sleep 0.05; echo late"
        finished = self.assert_status(0, self.run_workers("-n", 2, "--num-cpus", 2, "--", "sh", "-c", script))
        self.assertEqual("[rank 1] late\n", finished.out)

    def test_what_cannot_fit_is_3_and_makes_nothing(self):
        finished = self.assert_status(3, self.run_workers("-n", 5, "--num-cpus", 4, "--", "true"))
        self.assert_line(finished, "run", "5", "CPU", "4")
        self.assert_nothing_made()

    def test_wrong_usage_is_2(self):
        self.assert_usage(self.run_workers("-n", "x", "--", "true"), "run", "num-workers")

    def test_killed_agent_is_5(self):
        process = self.start("run", "--storage-path", self.storage, "-n", 2, "--num-cpus", 2, "--", "sh", "-c",
                             ": > ready.$RANK; sleep " + NEVER)
        self.wait_for_files(process, "ready.0", "ready.1")
        agent = children(process.pid)[0]
        os.kill(agent, signal.SIGKILL)
        finished = self.assert_status(5, self.finish(process))
        self.assertIn("agent", finished.err)
        self.assertIn("signal 9", finished.err)

    def test_a_path_as_long_as_sqlite_opens_and_one_byte_more(self):
        """Links do not make it shorter: SQLite takes the path without them."""
        long = os.path.join(os.path.realpath(self.place), *["d" * 200] * 2)
        os.makedirs(long)
        os.symlink(long, os.path.join(self.place, "short"))
        length = 504 - len(long + "//run.db")
        self.assert_status(0, self.trainyard("run", "--storage-path", long, "--name", "n" * length, "--", "true"))
        for storage in (long, os.path.join(self.place, "short")):
            finished = self.assert_status(2, self.trainyard("run", "--storage-path", storage, "--name", "n" * (length + 1),
                                                            "--", "touch", os.path.join(self.place, "started")))
            self.assertRegex(finished.err, r"^trainyard run: the path /.*/run\.db has 505 bytes: SQLite opens at most 504; .*\n$")
        self.assertEqual(["n" * length], os.listdir(long))
        self.assertFalse(os.path.exists(os.path.join(self.place, "started")))

    def test_signals_to_the_command(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                script = 'trap "echo saved; exit 0" TERM; : > ready.%d; while :; do sleep 0.01; done' % number
                process = self.start("run", "--storage-path", self.storage, "--", "sh", "-c", script)
                self.wait_for_files(process, "ready.%d" % number)
                process.send_signal(number)
                finished = self.assert_status(128 + number, self.finish(process))
                self.assertIn("[rank 0] saved\n", finished.out)

    def test_ignored_hangup_stays_ignored(self):
        """As under nohup."""
        process = self.start("run", "--storage-path", self.storage, "--", "sh", "-c",
                             ": > ready; while [ ! -e go ]; do sleep 0.01; done; echo alive",
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_for_files(process, "ready")
        process.send_signal(signal.SIGHUP)
        self.write("go", "")
        self.assertEqual("[rank 0] alive\n", self.assert_status(0, self.finish(process)).out)


class NotStarted(RunCase):
    """Exit status 4, and one screen that names the rank, the program and the reason."""

    def assert_not_started(self, finished, *words):
        self.assert_status(4, finished)
        self.assertEqual("", finished.out)
        headline = finished.err.splitlines()[0]
        self.assertTrue(headline.startswith("trainyard run: "), repr(finished))
        self.assertIn("could not be started", headline)
        for word in words:
            self.assertIn(word, headline, repr(finished))
        self.assertNotIn("all of its output", finished.err)

    def test_no_such_program(self):
        self.assert_not_started(self.run_workers("--", "no-such-program"), "rank 0", "no-such-program", "PATH")
        self.assert_not_started(self.run_workers("--", "./no-such-program"), "./no-such-program", "No such file")

    def test_no_rank_stays_behind(self):
        self.assert_not_started(self.run_workers("-n", 8, "--num-cpus", 8, "--", "/no/such"), "/no/such")

    def test_not_executable(self):
        path = self.write("data", "text")
        os.chmod(path, 0o644)
        self.assert_not_started(self.run_workers("--", path), path, "Permission denied")

    def test_directory(self):
        self.assert_not_started(self.run_workers("--", self.place), self.place, "it is a directory")

    def test_interpreter_that_is_not_there(self):
        path = self.write("script", "#!/no/such/interpreter -x\n")
        os.chmod(path, 0o755)
        self.assert_not_started(self.run_workers("--", path), path, "/no/such/interpreter")

    def test_not_a_program(self):
        path = self.write("binary", b"\x7fELF\0\0\0\0nothing")
        os.chmod(path, 0o755)
        self.assert_not_started(self.run_workers("--", path), path, "Exec format error")

    def test_variable_too_long_for_the_kernel(self):
        config = self.write("config.json", '{"run_config": {"worker_runtime_env": {"env_vars": {"LONG": "%s"}}}}' % ("x" * 200000))
        self.assert_not_started(self.run_workers("--config", config, "--", "true"), "Argument list too long")

    def test_it_is_not_tried_again(self):
        finished = self.run_workers("--max-failures", 3, "--", "/no/such")
        self.assert_not_started(finished, "/no/such")
        self.assertNotIn("attempt", finished.err)

    def test_a_script_without_a_first_line_runs_as_a_shell_would(self):
        path = self.write("plain-script", "echo plain $1\n")
        os.chmod(path, 0o755)
        self.assertEqual("[rank 0] plain x\n", self.assert_status(0, self.run_workers("--", path, "x")).out)


class Environment(RunCase):
    def test_all_variables_of_one_node(self):
        found = self.environments("-n", 3, "--num-cpus", 6, "--resources", "CPU=2", "--name", "named", "--max-failures", 2)
        self.assertEqual(3, len(found))
        for rank, environment in enumerate(found):
            port = environment["MASTER_PORT"]
            expected = {
                "RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "3", "NODE_RANK": "0",
                "MASTER_ADDR": "127.0.0.1", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_RANK": str(rank),
                "ROLE_NAME": "default", "ROLE_WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "named",
                "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "2", "TORCHELASTIC_USE_AGENT_STORE": "False",
                "TORCHELASTIC_ERROR_FILE": os.path.join(self.storage, "named", "logs", "rank-%d.error.json" % rank),
                "TRAINYARD_RUN": "named", "TRAINYARD_ATTEMPT": "1", "TRAINYARD_DEVICES": "", "OMP_NUM_THREADS": "2",
            }
            self.assertEqual(expected, {name: environment.get(name) for name in expected})
            self.assertEqual(port, found[0]["MASTER_PORT"])
            self.assertTrue(0 < int(port) < 65536)

    def test_several_nodes(self):
        cluster = self.write("cluster.yaml", "nodes:\n  - {name: 'n[1-2]', resources: {CPU: 2}}\n")
        found = self.environments("-n", 4, "--cluster", cluster)
        names = ["RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE"]
        self.assertEqual([["0", "0", "2", "0", "0", "2"], ["1", "1", "2", "0", "0", "2"],
                          ["2", "0", "2", "1", "1", "2"], ["3", "1", "2", "1", "1", "2"]],
                         [[environment[name] for name in names] for environment in found])
        self.assertEqual(1, len({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in found}))

    def test_threads(self):
        def threads(*args, env=None):
            return self.environments("--num-cpus", 8, "-n", 2, *args, env=env)[0].get("OMP_NUM_THREADS")
        no_threads = {"OMP_NUM_THREADS": None}
        self.assertEqual("1", threads(env=no_threads))
        self.assertIsNone(threads("-n", 1, env=no_threads))
        self.assertIsNone(threads("-n", 1, "--resources", "CPU=4", env=no_threads))
        self.assertEqual("4", threads("--resources", "CPU=4", env=no_threads))
        self.assertEqual("2", threads("--resources", "CPU=2.5", env=no_threads))
        self.assertEqual("1", threads("--resources", "CPU=0.5", env=no_threads))
        self.assertEqual("7", threads("--resources", "CPU=4", env={"OMP_NUM_THREADS": "7"}))
        self.assertEqual("3", threads("--resources", "CPU=4", "--env", "OMP_NUM_THREADS=3", env=no_threads))

    def devices(self, *args, env=None):
        """(visible devices, own ones) of each rank."""
        found = self.environments(*args, env=env)
        return [(environment.get("CUDA_VISIBLE_DEVICES"), environment["TRAINYARD_DEVICES"]) for environment in found]

    def test_whole_devices(self):
        four = ["-n", 2, "--num-cpus", 4, "--num-gpus", 4, "--use-gpu"]
        self.assertEqual([("0,1", "0"), ("0,1", "1")], self.devices(*four))
        self.assertEqual([("0,1,2,3", "0,1"), ("0,1,2,3", "2,3")], self.devices(*four, "--resources", "GPU=2"))

    def test_isolated_devices(self):
        self.assertEqual([("0,1", "0,1"), ("2,3", "0,1")], self.devices(
            "-n", 2, "--num-cpus", 4, "--num-gpus", 4, "--use-gpu", "--resources", "GPU=2", "--isolate-devices"))

    def test_fractions_of_devices(self):
        self.assertEqual([("0,1", "0"), ("0,1", "0"), ("0,1", "1"), ("0,1", "1")], self.devices(
            "-n", 4, "--num-cpus", 4, "--num-gpus", 2, "--use-gpu", "--resources", "GPU=0.5"))
        self.assertEqual([("0", "0"), ("0", "0")], self.devices(
            "-n", 2, "--num-cpus", 4, "--num-gpus", 2, "--use-gpu", "--resources", "GPU=0.5", "--isolate-devices"))

    def test_visible_devices_are_nested_under_inherited_ones(self):
        two = ["-n", 2, "--num-cpus", 2, "--num-gpus", 3, "--use-gpu"]
        self.assertEqual([("3,5", "0"), ("3,5", "1")], self.devices(*two, env={"CUDA_VISIBLE_DEVICES": "3,5,7"}))
        # The first two entries are granted; ranks go by the number of their device.
        self.assertEqual([("2", "0"), ("7", "0")],
                         self.devices(*two, "--isolate-devices", env={"CUDA_VISIBLE_DEVICES": "7,2,4"}))
        uuids = "GPU-11111111-d72c-4106-c12f-20bd9faed9f6,GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
        self.assertEqual([(uuids, "0"), (uuids, "1")],
                         self.devices(*two[:-3], "--num-gpus", 2, "--use-gpu", env={"CUDA_VISIBLE_DEVICES": uuids}))
        mig = "MIG-a,MIG-b,MIG-c"
        self.assertEqual([("MIG-a,MIG-b", "0"), ("MIG-a,MIG-b", "1")],
                         self.devices(*two, env={"CUDA_VISIBLE_DEVICES": mig}))

    def test_options_of_the_user(self):
        found = self.environments("--env", "A=1", "--env", "B=x=y z", "--env", "EMPTY=", "--env", "LINES=a\nb", "--env", "A=2",
                                  "--env", "HERE", env={"HERE": "from outside", "KEPT": "as it is"})[0]
        self.assertEqual(["2", "x=y z", "", "a\nb", "from outside", "as it is"],
                         [found[name] for name in ("A", "B", "EMPTY", "LINES", "HERE", "KEPT")])

    def test_names_that_are_not_the_users(self):
        for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "TRAINYARD_TOKEN", "TRAINYARD_DEVICES"):
            with self.subTest(name):
                self.assert_usage(self.run_workers("--env", name + "=1", "--", "true"), "run", name)
        self.assert_usage(self.run_workers("--env", "NOT_SET_HERE", "--", "true"), "run", "NOT_SET_HERE")
        self.assert_usage(self.run_workers("--env", "1X=2", "--", "true"), "run", "1X")

    def test_unusual_entries_pass(self):
        """Names that are no identifiers, values of any bytes, and much of it."""
        big = {"BIG_%d" % i: "x" * 1000 for i in range(1000)}
        found = self.environments("-n", 2, "--num-cpus", 2, env=dict(big, **{"odd.name-1": "v", "BYTES": "\udcff\udc80\n\t"}))
        for environment in found:
            self.assertEqual("\udcff\udc80\n\t", environment["BYTES"])
            self.assertEqual(big, {name: environment.get(name) for name in big})


class Rendezvous(RunCase):
    def meet(self, *names, prefix=(), n=3):
        script = self.write("meet.py", RENDEZVOUS)
        total = sum(range(n))
        process = subprocess.run(
            [*prefix, COMMAND, "run", "--storage-path", self.storage, "-n", str(n), "--num-cpus", str(n), "--no-prefix", "--",
             PYTHON, "-S", "-E", script, *names],
            cwd=self.place, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180)
        self.assertEqual((0, "sum %d\n" % total * n), (process.returncode, process.stdout), process.stderr)

    def test_plain_variables(self):
        self.meet("RANK", "WORLD_SIZE")

    def test_names_of_torchrun(self):
        self.meet("ROLE_RANK", "ROLE_WORLD_SIZE")

    def network(self, commands):
        """The words that run a program in a network of its own, after these shell commands; None where the kernel forbids it."""
        words = ["unshare", "-n"] if os.getuid() == 0 else ["unshare", "-r", "-n"]
        words += ["sh", "-ec", commands + '\nexec "$@"', "sh"]
        tried = subprocess.run([*words, "true"], capture_output=True)
        return words if tried.returncode == 0 else None

    def test_only_ipv6(self):
        prefix = self.network("ip link set lo up; ip addr del 127.0.0.1/8 dev lo; ip -6 addr show dev lo | grep -q ::1")
        self.meet("RANK", "WORLD_SIZE", prefix=prefix or [])
        if prefix is not None:
            shown = subprocess.run([*prefix, COMMAND, "run", "--storage-path", self.storage, "--", "sh", "-c", "echo $MASTER_ADDR"],
                                   cwd=self.place, env=self.environment, capture_output=True, text=True, timeout=180)
            self.assertEqual("[rank 0] ::1\n", shown.stdout, shown.stderr)

    def test_no_loopback(self):
        """A network of its own begins so; workers that need none go on."""
        prefix = self.network("true")
        if prefix is None:
            self.skipTest("no network of its own may be made here")
        shown = subprocess.run([*prefix, COMMAND, "run", "--storage-path", self.storage, "--", "echo", "well"],
                               cwd=self.place, env=self.environment, capture_output=True, text=True, timeout=180)
        self.assertEqual((0, "[rank 0] well\n"), (shown.returncode, shown.stdout), shown.stderr)
        self.assertIn("its loopback interface is not up", shown.stderr)

    def test_no_ipv6(self):
        prefix = self.network("echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; ip link set lo up")
        self.meet("RANK", "WORLD_SIZE", prefix=prefix or [])

    def test_the_kernel_gives_the_port_to_nobody_else(self):
        """A worker asks for every free port there is: MASTER_PORT and its own are not among them, and can be bound in any way."""
        script = self.write("ask.py", r"""
import os, socket
held = int(os.environ["MASTER_PORT"])
got, kept = set(), []
while len(got) < 500:
    asked = socket.socket()
    try:
        asked.bind(("", 0))
    except OSError:
        break
    kept.append(asked)
    got.add(asked.getsockname()[1])
print(held in got, len(got) > 0)
own = int(os.environ["TRAINYARD_PORT"])
for port in (held, own):
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(family) as other:  # without SO_REUSEADDR
            other.bind(("", port))
            other.listen()
print(len({held, own}), own in got)
""")
        prefix = self.network("ip link set lo up; echo 40000 40007 > /proc/sys/net/ipv4/ip_local_port_range")
        shown = subprocess.run([*(prefix or []), COMMAND, "run", "--storage-path", self.storage, "--no-prefix", "--", PYTHON, "-S", script],
                               cwd=self.place, env=self.environment, capture_output=True, text=True, timeout=180)
        self.assertEqual("False True\n2 False\n", shown.stdout, shown.stderr)

    def test_connections_that_linger_keep_no_attempt_from_its_ports(self):
        """The server ends first, so that its port is not free for a minute; the next attempt binds all the same, as strictly."""
        script = self.write("linger.py", r"""
import os, socket, sys
for name in ("MASTER_PORT", "TRAINYARD_PORT"):
    server, client = socket.socket(), socket.socket()
    server.bind(("", int(os.environ[name])))
    server.listen()
    client.connect(server.getsockname())
    accepted = server.accept()[0]
    accepted.shutdown(socket.SHUT_WR)
    client.recv(1)
    client.close()
sys.exit(0 if os.environ["TRAINYARD_ATTEMPT"] == "4" else 1)
""")
        finished = self.run_workers("--max-failures", 3, "--", PYTHON, "-S", script)
        self.assert_status(0, finished)
        self.assertNotIn("Address already in use", finished.err)

    def test_a_port_of_each_rank(self):
        found = self.environments("-n", 80, "--num-cpus", 80, "--framework", "tensorflow")
        ports = [environment["TRAINYARD_PORT"] for environment in found]
        self.assertEqual(81, len({*ports, found[0]["MASTER_PORT"]}))
        for rank, environment in enumerate(found):
            config = json.loads(environment["TF_CONFIG"])
            self.assertEqual({"type": "worker", "index": rank}, config["task"])
            self.assertEqual(["127.0.0.1:" + port for port in ports], config["cluster"]["worker"])

    def test_runs_at_the_same_time_have_different_ports(self):
        script = "echo $MASTER_PORT $TRAINYARD_PORT > port.$TRAINYARD_RUN; while [ ! -e go ]; do sleep 0.01; done"
        names = ["one", "two", "three"]
        processes = [self.start("run", "--storage-path", self.storage, "--name", name, "--", "sh", "-c", script) for name in names]
        self.wait_for(lambda: all(os.path.exists(os.path.join(self.place, "port." + name)) for name in names))
        self.write("go", "")
        for process in processes:
            self.assert_status(0, self.finish(process))
        self.assertEqual(6, len({port for name in names for port in read(self.place, "port." + name).split()}))

    def test_the_port_is_held_for_every_attempt(self):
        script = self.write("meet.py", RENDEZVOUS)
        command = '"%s" -S -E %s RANK WORLD_SIZE && [ $TRAINYARD_ATTEMPT = 3 ]' % (PYTHON, script)
        finished = self.run_workers("-n", 2, "--num-cpus", 2, "--max-failures", 2, "--no-prefix", "--", "sh", "-c", command)
        self.assert_status(0, finished)
        self.assertGreaterEqual(finished.out.count("sum 1\n"), 4, repr(finished))


class NamesAndPlaces(RunCase):
    def test_files_of_a_run(self):
        self.assert_status(0, self.run_workers("--name", "mine", "-n", 2, "--num-cpus", 2, "--", "sh", "-c", "echo $RANK"))
        run = os.path.join(self.storage, "mine")
        self.assertEqual(["logs", "run.db"], sorted(name for name in os.listdir(run) if name in ("logs", "run.db")))
        self.assertEqual(["0\n", "1\n"], [read(run, "logs", "rank-%d.log" % rank) for rank in (0, 1)])

    def test_made_up_names_differ(self):
        for _ in range(3):
            self.assert_status(0, self.run_workers("--quiet", "--", "true"))
        names = os.listdir(self.storage)
        self.assertEqual(3, len(names))
        for name in names:
            self.assertRegex(name, r"^run-\d{8}-\d{6}-[0-9a-f]{4}$")

    def test_name_that_is_taken(self):
        self.assert_status(0, self.run_workers("--name", "taken", "--", "sh", "-c", "echo first"))
        finished = self.assert_status(2, self.run_workers("--name", "taken", "--", "sh", "-c", "echo second"))
        self.assert_line(finished, "run", "taken", "--resume")
        self.assertEqual("first\n", read(self.storage, "taken", "logs", "rank-0.log"))

    def test_resume_goes_on_counting(self):
        script = "echo $TRAINYARD_ATTEMPT $TORCHELASTIC_RESTART_COUNT; exit $((TRAINYARD_ATTEMPT == 1))"
        first = self.run_workers("--name", "again", "--", "sh", "-c", script)
        self.assertEqual("[rank 0] 1 0\n", self.assert_status(1, first).out)
        second = self.run_workers("--name", "again", "--resume", "--", "sh", "-c", script)
        self.assertEqual("[rank 0] 2 1\n", self.assert_status(0, second).out)
        self.assertEqual("1 0\n2 1\n", read(self.storage, "again", "logs", "rank-0.log"))

    def test_resume_takes_the_name(self):
        """As its value, or by --name; the word behind it is the program where none is still to come."""
        for words in (("--resume", "r", "--"), ("--resume=r", "--"), ("--resume=r",), ("--resume", "r", "--name", "r", "--"),
                      ("--name", "r", "--resume")):
            with self.subTest(words):
                self.run_workers("--name", "r", "--", "false")
                finished = self.run_workers(*words, "sh", "-c", "echo again; echo -- $TRAINYARD_RUN")
                self.assertEqual("[rank 0] again\n[rank 0] -- r\n", self.assert_status(0, finished).out)
                shutil.rmtree(os.path.join(self.storage, "r"))
        for words, told in ((("--resume", "--", "true"), "takes its name"), (("--resume", "true"), "takes its name"),
                            (("--resume=a/b", "true"), "a/b"), (("--resume=", "true"), "--resume ''"),
                            (("--name", "x", "--resume", "npm", "run", "--", "y"), "--resume npm")):
            with self.subTest(words):
                self.assert_line(self.assert_status(2, self.run_workers(*words)), "run", told)
        self.assertEqual([], os.listdir(self.storage))

    def test_a_run_that_goes_on_is_not_resumed(self):
        process = self.start("run", "--storage-path", self.storage, "--name", "busy", "--", "sh", "-c", ": > ready; sleep " + NEVER)
        self.wait_for_files(process, "ready")
        finished = self.assert_status(2, self.run_workers("--name", "busy", "--resume", "--", "true"))
        self.assert_line(finished, "run", "busy", "goes on")
        process.terminate()
        self.assert_status(143, self.finish(process))

    def test_unusual_names(self):
        for name in ("with space", "größe-训练", "a;b $(x) `y` '\"", "%s%n", "x" * 200):
            with self.subTest(name):
                finished = self.assert_status(0, self.run_workers("--name", name, "--", "sh", "-c", "echo \"$TRAINYARD_RUN\""))
                self.assertEqual("[rank 0] %s\n" % name, finished.out)
                self.assertEqual(name + "\n", read(self.storage, name, "logs", "rank-0.log"))

    def storage_of(self, path, env=None):
        return self.trainyard("run", "--storage-path", path, "--name", "r", "--", "sh", "-c", "echo $TRAINYARD_RUN_PATH", env=env)

    def test_storage_paths(self):
        for given, where in (("relative/deep", "relative/deep"), ("./x/../y", "y"), ("~/in home", "in home"), ("~", ""),
                             (os.path.join(self.place, "abs") + "///", "abs")):
            with self.subTest(given):
                finished = self.assert_status(0, self.storage_of(given))
                run = os.path.join(self.place, where, "r")
                self.assertEqual(os.path.realpath(run), os.path.realpath(finished.out[len("[rank 0] "):-1]))
                self.assertTrue(os.path.isfile(os.path.join(run, "run.db")))

    def test_a_storage_path_with_a_line_end(self):
        """No worker could be told where its checkpoints go; refused by name, also where it is the working directory's."""
        odd = os.path.join(self.place, "one\nother")
        os.mkdir(odd)
        for place, given in ((self.place, odd), (odd, "runs")):
            with self.subTest(given):
                finished = self.assert_status(2, self.trainyard("run", "--storage-path", given, "--", "true", cwd=place))
                self.assert_line(finished, "run", "line end", "--storage-path")
        self.assertEqual([], os.listdir(odd))

    def test_default_storage_path(self):
        self.assert_status(0, self.trainyard("run", "--name", "r", "--", "true"))
        self.assertTrue(os.path.isfile(os.path.join(self.place, "trainyard_runs", "r", "run.db")))

    def test_storage_that_cannot_be_written(self):
        in_the_way = self.write("file", "")
        for path in (os.path.join(in_the_way, "x"), in_the_way, "/proc/nothing"):
            with self.subTest(path):
                finished = self.assert_status(2, self.storage_of(path))
                self.assert_line(finished, "run", path)

    def test_home_that_cannot_be_written(self):
        for home in ("/proc", "/proc/x", os.path.join(self.write("file", ""), "home")):
            with self.subTest(home):
                finished = self.assert_status(2, self.trainyard("run", "--", "true", env={"HOME": home}))
                self.assert_line(finished, "run", home, "trainyard_runs")
        # With another place for the runs no HOME is needed.
        self.assert_status(0, self.run_workers("--quiet", "--", "true", env={"HOME": "/proc"}))
        self.assert_status(0, self.run_workers("--quiet", "--", "true", env={"HOME": None}))


class Options(RunCase):
    def test_time_limit(self):
        finished = self.run_workers("--time-limit", "100ms", "-n", 2, "--num-cpus", 2, "--", "sleep", NEVER)
        self.assert_status(124, finished)
        self.assertIn("time limit of 100 ms", finished.err)
        self.assertNotIn("all of its output", finished.err)

    def test_a_time_limit_that_passes_while_an_attempt_is_stopped(self):
        """It fails for ever, and each attempt takes its whole grace to end: the limit is heard in one of these, and no other attempt follows."""
        deaf = "deaf.$TRAINYARD_ATTEMPT"
        script = '[ $RANK = 0 ] && { until [ -e %s ]; do sleep 0.01; done; exit 1; }; trap "" TERM; : > %s; while :; do sleep 0.01; done' % (deaf, deaf)
        finished = self.run_workers("-n", 2, "--num-cpus", 2, "--grace", "10s", "--max-failures", -1, "--time-limit", "8s", "--", "sh", "-c", script)
        self.assert_status(124, finished)
        self.assertIn("time limit of 8 s", finished.err)
        self.assertNotIn("attempt 2 begins", finished.err)
        self.assertIn("  rank 0 failed\n", finished.err)  # and not after the limit

    def test_time_limit_that_is_not_reached(self):
        self.assert_status(3, self.run_workers("--time-limit", "1h", "--", "sh", "-c", "exit 3"))

    def test_who_obeys_has_its_grace(self):
        script = 'trap ": > asked; while [ ! -e go ]; do sleep 0.01; done; echo saved; exit 0" TERM; : > ready; while :; do sleep 0.01; done'
        process = self.start("run", "--storage-path", self.storage, "--grace", "10m", "--", "sh", "-c", script)
        self.wait_for_files(process, "ready")
        process.terminate()
        self.wait_for_files(process, "asked")
        self.assertIsNone(process.poll())
        self.write("go", "")
        self.assertEqual("[rank 0] saved\n", self.assert_status(143, self.finish(process)).out)

    def test_who_does_not_obey_is_killed_after_the_grace(self):
        script = "trap '' TERM INT HUP; : > ready.%s.$RANK; while :; do sleep 0.01; done"
        for grace in ("0", "50ms"):
            with self.subTest(grace):
                process = self.start("run", "--storage-path", self.storage, "--grace", grace, "-n", 2, "--num-cpus", 2, "--",
                                     "sh", "-c", script % grace)
                self.wait_for_files(process, "ready.%s.0" % grace, "ready.%s.1" % grace)
                process.terminate()
                self.assert_status(143, self.finish(process))

    def test_failures_that_may_happen(self):
        script = "echo $TRAINYARD_ATTEMPT $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS; [ $TRAINYARD_ATTEMPT = 3 ] || exit 9"
        finished = self.assert_status(0, self.run_workers("--max-failures", 2, "--", "sh", "-c", script))
        self.assertEqual("".join("[rank 0] %d %d 2\n" % (attempt, attempt - 1) for attempt in (1, 2, 3)), finished.out)
        for attempt in (2, 3):
            self.assertIn("rank 0 exited with code 9, on node %s: attempt %d begins" % (os.uname().nodename, attempt), finished.err)
        finished = self.assert_status(9, self.run_workers("--max-failures", 1, "--", "sh", "-c", script))
        self.assertEqual(2, finished.out.count("\n"))

    def test_failures_without_bound(self):
        script = "[ $TRAINYARD_ATTEMPT = 4 ] || kill -KILL $$"
        self.assert_status(0, self.run_workers("--quiet", "--max-failures", "-1", "--", "sh", "-c", script))

    def test_all_ranks_start_again(self):
        script = "echo $TRAINYARD_ATTEMPT; [ $TRAINYARD_ATTEMPT = 2 ] && exit 0; [ $RANK = 1 ] && exit 1; sleep " + NEVER
        self.assert_status(0, self.run_workers("--name", "r", "-n", 3, "--num-cpus", 3, "--max-failures", 1, "--", "sh", "-c", script))
        for rank in range(3):
            self.assertTrue(read(self.storage, "r", "logs", "rank-%d.log" % rank).endswith("2\n"))

    def test_a_lost_agent_is_a_failure_too(self):
        script = "echo $TRAINYARD_ATTEMPT; [ $TRAINYARD_ATTEMPT = 2 ] && exit 0; kill -KILL $PPID; sleep " + NEVER
        finished = self.assert_status(0, self.run_workers("--max-failures", 1, "--", "sh", "-c", script))
        self.assertIn("[rank 0] 2\n", finished.out)

    def test_an_interrupt_ends_it_for_good(self):
        process = self.start("run", "--storage-path", self.storage, "--max-failures", "-1", "--", "sh", "-c", ": > ready; sleep " + NEVER)
        self.wait_for_files(process, "ready")
        process.send_signal(signal.SIGINT)
        self.assert_status(130, self.finish(process))

    def test_config_file(self):
        texts = {"config.yaml": "scaling_config: {num_workers: 2, resources_per_worker: {CPU: 2}}\n"
                                "run_config:\n  name: from-file\n  storage_path: '%s'\n  failure_config: {max_failures: 1}\n"
                                "  worker_runtime_env: {env_vars: {A: file, B: file}}\n" % self.storage,
                 "config.json": '{"scaling_config": {"num_workers": 2, "resources_per_worker": {"CPU": 2}}, "run_config": '
                                '{"name": "from-json", "storage_path": "%s", "failure_config": {"max_failures": 1}, '
                                '"worker_runtime_env": {"env_vars": {"A": "file", "B": "file"}}}}' % self.storage}
        script = "echo $TRAINYARD_RUN $WORLD_SIZE $OMP_NUM_THREADS $A $B $TORCHELASTIC_MAX_RESTARTS $TRAINYARD_RUN_PATH"
        for name, text in texts.items():
            with self.subTest(name):
                run = "from-" + {"yaml": "file", "json": "json"}[name[-4:]]
                finished = self.trainyard("run", "--config", self.write(name, text), "--num-cpus", 4, "--env", "B=option", "--",
                                          "sh", "-c", script)
                line = "%s 2 2 file option 1 %s/%s\n" % (run, self.storage, run)
                self.assertEqual(["[rank 0] " + line, "[rank 1] " + line],
                                 sorted(self.assert_status(0, finished).out.splitlines(True)))

    def test_config_file_sets_options_of_the_run(self):
        fields = ("run_config: {framework: torch, backend: gloo, time_limit_s: %s, grace_s: 0.5, hang_timeout_s: 1e3, preempt_signal: USR1, "
                  "progress: none, quiet: %s, no_wait: true, isolate_devices: true, resume: false, checkpoint_config: {on_checkpoint_error: "
                  "continue}}\n")
        quiet = self.run_workers("--config", self.write("q.yaml", fields % (3600, "true")), "--", "echo", "word")
        self.assertEqual("", self.assert_status(0, quiet).out)
        loud = self.run_workers("--config", self.write("l.yaml", fields % (3600, "null")), "--", "echo", "word")
        self.assertEqual("[rank 0] word\n", self.assert_status(0, loud).out)
        late = self.run_workers("--config", self.write("t.yaml", fields % (0.2, "false")), "--", "sleep", NEVER)
        self.assertNotEqual(0, late.status)
        self.assertIn("time limit", late.err)
        won = self.run_workers("--config", self.write("w.yaml", fields % (0.2, "false")), "--time-limit", 0, "--", "sleep", "0.5")
        self.assert_status(0, won)

    def test_config_file_names_the_option_that_it_sets_wrong(self):
        for field in ("chaos: 's:x'", "preempt_signal: KILL", "framework: torhc", "progress: x"):
            with self.subTest(field):
                path = self.write("wrong.yaml", "run_config:\n  %s\n" % field)
                finished = self.run_workers("--config", path, "--", "true")
                self.assert_usage(finished, "run", path + ":2:", field.split(":")[0])

    def test_options_win_over_the_config_file(self):
        config = self.write("c.yaml", "scaling_config: {num_workers: 4}\nrun_config: {name: file}\n")
        finished = self.run_workers("--config", config, "-n", 1, "--name", "option", "--", "sh", "-c", "echo $TRAINYARD_RUN $WORLD_SIZE")
        self.assertEqual("[rank 0] option 1\n", self.assert_status(0, finished).out)

    def test_no_wait(self):
        devices = ["--num-gpus", 1, "--use-gpu"]
        holder = self.start("run", "--storage-path", self.storage, "--name", "holder", *devices, "--", "sh", "-c",
                            ": > ready; while [ ! -e go ]; do sleep 0.01; done")
        self.wait_for_files(holder, "ready")
        finished = self.assert_status(3, self.run_workers("--no-wait", *devices, "--", "true"))
        self.assert_line(finished, "run", "GPU", "holder", str(holder.pid))
        waiter = self.start("run", "--storage-path", self.storage, "--name", "waiter", *devices, "--", "sh", "-c", "echo mine")
        self.assertIn("holder", waiter.stderr.readline())
        self.write("go", "")
        self.assertEqual("[rank 0] mine\n", self.assert_status(0, self.finish(waiter)).out)
        self.assert_status(0, self.finish(holder))

    def test_a_wait_can_be_interrupted(self):
        devices = ["--num-gpus", 1, "--use-gpu"]
        holder = self.start("run", "--storage-path", self.storage, *devices, "--", "sh", "-c", ": > ready; sleep " + NEVER)
        self.wait_for_files(holder, "ready")
        waiter = self.start("run", "--storage-path", self.storage, *devices, "--", "true")
        self.assertIn("waiting", waiter.stderr.readline())
        waiter.send_signal(signal.SIGINT)
        self.assert_status(130, self.finish(waiter))
        holder.terminate()
        self.assert_status(143, self.finish(holder))


class Nested(RunCase):
    def test_a_worker_that_is_a_run(self):
        inner = "'%s' run --storage-path '%s' -n 2 --num-cpus 2 -- sh -c 'echo $OUTER: $RANK of $WORLD_SIZE, $TRAINYARD_RUN'" % (
            COMMAND, os.path.join(self.place, "inner"))
        finished = self.run_workers("--name", "outer", "-n", 3, "--num-cpus", 3, "--", "sh", "-c", "export OUTER=$RANK; exec " + inner)
        self.assert_status(0, finished)
        lines = finished.out.splitlines()
        self.assertEqual(6, len(lines))
        for outer in range(3):
            for rank in range(2):
                wanted = "[rank %d] [rank %d] %d: %d of 2, run-" % (outer, rank, outer, rank)
                self.assertEqual(1, sum(line.startswith(wanted) for line in lines), finished.out)

    def test_its_status_is_the_workers(self):
        inner = "exec '%s' run --quiet --storage-path '%s' -- sh -c 'exit 77'" % (COMMAND, os.path.join(self.place, "inner"))
        self.assert_status(77, self.run_workers("--", "sh", "-c", inner))

    def test_the_end_of_the_outer_run_is_that_of_the_inner(self):
        for number in (signal.SIGINT, signal.SIGKILL):
            with self.subTest(number):
                inner = "exec '%s' run --storage-path '%s' -- sh -c ': > ready.%d; sleep %s'" % (
                    COMMAND, os.path.join(self.place, "inner"), number, NEVER)
                process = self.start("run", "--storage-path", self.storage, "--", "sh", "-c", inner)
                self.wait_for_files(process, "ready.%d" % number)
                process.send_signal(number)
                self.assert_status(128 + number, self.finish(process))
                self.check_nothing_left()


class Arguments(RunCase):
    def arguments(self, *words):
        """The words as the program finds them."""
        script = self.write("words.py", "import os, sys\nsys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))\n")
        self.assert_status(0, self.run_workers("--name", "words", "--quiet", "--", PYTHON, "-S", script, *words))
        found = read(self.storage, "words", "logs", "rank-0.log").split("\0")
        shutil.rmtree(os.path.join(self.storage, "words"))
        return found

    def test_words_pass_as_they_are(self):
        words = ["", "a b", "--name", "-n", "--", "$HOME `x` $(y) ; | & > \\ ' \"", "line\nline", "\t", "", "ü训", "\udcff\udcfe", "%s%d", ""]
        self.assertEqual(words, self.arguments(*words))

    def test_longest_word(self):
        word = "x" * (128 * 1024 - 1)  # MAX_ARG_STRLEN with its NUL
        self.assertEqual([word], self.arguments(word))

    def test_many_words(self):
        words = [str(i) for i in range(20000)]
        self.assertEqual(words, self.arguments(*words))

    def test_an_empty_program_name(self):
        self.assert_usage(self.run_workers("--", ""), "run", "empty")

    def test_options_behind_the_program_are_its_own(self):
        finished = self.run_workers("echo", "--name", "x", "-n", "7", "--")
        self.assertEqual("[rank 0] --name x -n 7 --\n", self.assert_status(0, finished).out)


class OddStarts(RunCase):
    """What the caller left: closed descriptors, ignored and blocked signals, a directory that is gone, limits."""

    def test_closed_standard_descriptors(self):
        for closed in ([0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]):
            with self.subTest(closed):
                name = "closed-" + "".join(map(str, closed))

                def close(closed=closed):
                    for fd in closed:
                        os.close(fd)
                script = "echo out $RANK; echo err $RANK >&2; : > %s.$RANK; while [ ! -e %s.go ]; do sleep 0.01; done" % (name, name)
                process = self.start("run", "--storage-path", self.storage, "--name", name, "-n", 2, "--num-cpus", 2, "--", "sh", "-c",
                                     script, preexec_fn=close)
                self.wait_for_files(process, name + ".0", name + ".1")
                for fd in closed:
                    self.assertEqual("/dev/null", os.readlink("/proc/%d/fd/%d" % (process.pid, fd)))
                self.write(name + ".go", "")
                finished = self.assert_status(0, self.finish(process))
                self.assertEqual(1 in closed, finished.out == "")
                self.assertEqual(2 in closed, finished.err == "")
                run = os.path.join(self.storage, name)
                logs = [read(run, "logs", "rank-%d.log" % rank) for rank in (0, 1)]
                self.assertEqual([["err %d" % rank, "out %d" % rank] for rank in (0, 1)], [sorted(log.splitlines()) for log in logs])
                with open(os.path.join(run, "run.db"), "rb") as file:
                    self.assertEqual(b"SQLite format 3\0", file.read(16))
                shown = self.trainyard("status", name, "--storage-path", self.storage, "--format", "json")
                self.assertIn("succeeded", self.assert_status(0, shown).out)

    def test_ignored_and_blocked_signals_are_not_the_workers(self):
        def spoil():
            for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR2})
        finished = self.finish(self.start("run", "--storage-path", self.storage, "--", "grep", "^Sig[BI]", "/proc/self/status",
                                          preexec_fn=spoil))
        masks = [int(line.split()[-1], 16) & 0x7fffffff for line in self.assert_status(0, finished).out.splitlines()]
        self.assertEqual([0, 0], masks, repr(finished))

    def test_ignored_child_signal_does_not_hide_how_workers_end(self):
        process = self.start("run", "--storage-path", self.storage, "-n", 2, "--num-cpus", 2, "--max-failures", 1, "--", "sh", "-c",
                             "kill -SEGV $$", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assert_status(139, self.finish(process))

    def test_descriptors_of_workers(self):
        """Standard input is empty; nothing of the caller's or of other workers leaks in."""
        reader, writer = os.pipe()
        script = "cat; for fd in /proc/self/fd/*; do [ ! -e $fd ] || echo ${fd##*/}; done"
        process = self.start("run", "--storage-path", self.storage, "-n", 3, "--num-cpus", 3, "--no-prefix", "--", "sh", "-c", script,
                             pass_fds=(reader, writer), stdin=subprocess.PIPE)
        finished = self.assert_status(0, self.finish(process))
        os.close(reader)
        os.close(writer)
        process.stdin.close()
        self.assertLessEqual(set(finished.out.split()), {"0", "1", "2", "3"}, finished.out)

    def test_directory_mask_and_limits_are_handed_on(self):
        def limit():
            os.umask(0o027)
            resource.setrlimit(resource.RLIMIT_NOFILE, (300, 5000))
        os.mkdir(os.path.join(self.place, "here"))
        process = self.start("run", "--storage-path", self.storage, "--", "sh", "-c", "pwd; umask; ulimit -Sn; ulimit -Hn",
                             cwd=os.path.join(self.place, "here"), preexec_fn=limit)
        lines = [line[len("[rank 0] "):] for line in self.assert_status(0, self.finish(process)).out.splitlines()]
        self.assertEqual([os.path.realpath(os.path.join(self.place, "here")), "0027", "300", "5000"], lines)

    def test_scheduling_policy_is_handed_on(self):
        """The agent itself is one that interrupts nobody, unless the user has chosen another policy."""
        program = self.write("policy.py", "import os\nprint(*map(os.sched_getscheduler, (0, os.getppid())), os.nice(0))")
        for policy, agents in ((os.SCHED_OTHER, os.SCHED_BATCH), (os.SCHED_BATCH, os.SCHED_BATCH), (os.SCHED_IDLE, os.SCHED_IDLE)):
            def choose(policy=policy):
                os.sched_setscheduler(0, policy, os.sched_param(0))
                os.nice(3)
            with self.subTest(policy=policy):
                finished = self.assert_status(0, self.run_workers("--", PYTHON, program, preexec_fn=choose))
                self.assertEqual("[rank 0] %d %d %d\n" % (policy, agents, min(19, os.nice(0) + 3)), finished.out)

    def test_directory_that_is_gone(self):
        gone = os.path.join(self.place, "gone")
        os.mkdir(gone)
        process = self.start("run", "--storage-path", self.storage, "--", "sh", "-c", "echo here", cwd=gone,
                             preexec_fn=lambda: os.rmdir(gone))
        finished = self.assert_status(4, self.finish(process))
        self.assert_line(finished, "run", "working directory", "was deleted")
        self.assertEqual("", finished.out)
        self.assertFalse(os.path.exists(self.storage))

    def test_directory_that_goes_between_attempts(self):
        here = os.path.join(self.place, "here")
        os.mkdir(here)
        finished = self.finish(self.start("run", "--storage-path", self.storage, "--max-failures", 1, "--", "sh", "-c",
                                          "pwd; rmdir ../here; exit 1", cwd=here))
        self.assert_status(4, finished)
        self.assertEqual("[rank 0] %s\n" % os.path.realpath(here), finished.out)
        self.assertIn("was deleted", finished.err)

    @unittest.skipUnless(os.getuid() == 0, "only root can become somebody else")
    def test_directory_that_may_not_be_entered(self):
        here = os.path.join(self.place, "here")
        command = shutil.copy(COMMAND, os.path.join(self.place, "trainyard"))  # where another user can reach it
        os.mkdir(here)

        def leave():
            os.chmod(here, 0)
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
        os.chmod(self.place, 0o755)
        process = subprocess.Popen([command, "run", "--storage-path", os.path.join(here, "runs"), "--", "true"],
                                   cwd=here, env=self.environment, preexec_fn=leave, stderr=subprocess.PIPE, text=True)
        err = process.communicate(timeout=180)[1]
        self.assertEqual(4, process.returncode, err)
        self.assertIn(here, err)
        self.assertIn("Permission denied", err)

    def test_a_long_grace_is_not_cut(self):
        """2^32 milliseconds are no grace at all in 32 bits."""
        saved = os.path.join(self.place, "saved")
        script = "trap 'sleep 0.5; echo yes > %s; exit 0' TERM; : > %s.up; while :; do sleep 0.01; done" % (saved, saved)
        process = self.start("run", "--storage-path", self.storage, "--grace", "4294967.296s", "--", "sh", "-c", script)
        self.wait_for(lambda: os.path.exists(saved + ".up"), "a worker", process)
        process.send_signal(signal.SIGTERM)
        self.assert_status(143, self.finish(process))
        self.assertTrue(os.path.exists(saved))

    def test_files_are_the_users(self):
        self.assert_status(0, self.run_workers("--name", "r", "--", "true"))
        for name in ("", "run.db", "logs"):
            self.assertEqual(os.getuid(), os.stat(os.path.join(self.storage, "r", name)).st_uid)
        self.assertFalse(os.stat(os.path.join(self.storage, "r", "run.db")).st_mode & stat.S_IWOTH)


if __name__ == "__main__":
    main()
