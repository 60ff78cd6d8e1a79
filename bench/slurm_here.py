"""A private Slurm on this machine, for srun to be measured: munged, slurmctld and one slurmd for each node.

Everything lies in a temporary directory and listens on 127.0.0.1 alone; nothing of an installed Slurm's configuration is read or
changed. Each daemon runs in the foreground as a child, so that it is ended by its pid, and the kernel ends it should the
bench die first."""
import ctypes
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

DAEMONS = ("munged", "slurmctld", "slurmd", "srun")
PR_SET_PDEATHSIG = 1

CONFIG = """
ClusterName=bench
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld_port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
ReturnToService=2
MaxTasksPerNode=1024
SlurmctldDebug=error
SlurmdDebug=error
SlurmdParameters=config_overrides
"""


def _which(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def missing():
    """The first program that is not installed, or None."""
    return next((name for name in DAEMONS if not _which(name)), None)


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Slurm:
    """Use as a context manager. `environment` is what srun needs; it runs inside an allocation that is held all the time, so that
    what is measured is the start of a step, not the queue."""

    def __init__(self, nodes=1, cpus=None):
        self.nodes = nodes
        self.cpus = cpus or os.cpu_count()  # that each node says it has
        self.directory = None
        self.environment = None
        self._daemons = []

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="bench-slurm-")
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def _daemon(self, *argv):
        log = open(os.path.join(self.directory, os.path.basename(argv[0]) + ".out"), "ab")
        with log:
            child = subprocess.Popen(argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     preexec_fn=_die_with_parent, start_new_session=True)
        self._daemons.append(child)

    def _write_config(self):
        path = os.path.join(self.directory, "slurm.conf")
        names = [f"node{i}" for i in range(self.nodes)]
        with open(path, "w") as f:
            f.write(CONFIG.format(directory=self.directory, user=getpass.getuser(), ctld_port=_free_port()))
            for name in names:
                f.write(f"NodeName={name} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={_free_port()} "
                        f"CPUs={self.cpus} State=UNKNOWN\n")
            f.write(f"PartitionName=all Nodes={','.join(names)} Default=YES State=UP OverSubscribe=FORCE:64\n")
        with open(os.path.join(self.directory, "cgroup.conf"), "w") as f:
            f.write("CgroupAutomount=no\n")
        return path, names

    def _start_munge(self):
        at = self.directory
        with open(os.open(f"{at}/munge.key", os.O_WRONLY | os.O_CREAT, 0o400), "wb") as f:
            f.write(os.urandom(1024))
        self._daemon(_which("munged"), "--foreground", "--force", f"--key-file={at}/munge.key", f"--socket={at}/munge.socket",
                     f"--pid-file={at}/munge.pid", f"--log-file={at}/munge.log", f"--seed-file={at}/munge.seed")
        self._wait("munged", lambda: os.path.exists(f"{at}/munge.socket"))

    def _wait(self, what, ready, seconds=30):
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                raise RuntimeError(f"{what} did not come up in {seconds} s")
            time.sleep(0.1)

    def _start(self):
        os.chmod(self.directory, 0o755)
        os.mkdir(os.path.join(self.directory, "state"), 0o700)
        config, names = self._write_config()
        self.environment = {**os.environ, "SLURM_CONF": config}
        self._start_munge()
        self._daemon(_which("slurmctld"), "-D", "-i", "-f", config)
        for name in names:
            self._daemon(_which("slurmd"), "-D", "-N", name, "-f", config)
        self._wait("slurmd", lambda: self._ask("sinfo", "-h", "-o", "%t").split() == ["idle"])
        said = self._ask("salloc", "--no-shell", "-N", str(self.nodes), "--exclusive", stream="stderr")
        job = next((word for word in said.split() if word.isdigit()), None)
        if job is None:
            raise RuntimeError(f"salloc: {said.strip()}")
        self.environment["SLURM_JOB_ID"] = job

    def _ask(self, *argv, stream="stdout"):
        done = subprocess.run(argv, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        return getattr(done, stream)

    def srun(self, n, *program, options=()):
        """The command line for n tasks."""
        return ["srun", "--overcommit", "--overlap", f"--nodes={self.nodes}", f"--ntasks={n}", *options, *program]

    def close(self):
        if self.environment and "SLURM_JOB_ID" in self.environment:
            self._ask("scancel", self.environment["SLURM_JOB_ID"])
        for child in reversed(self._daemons):
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
