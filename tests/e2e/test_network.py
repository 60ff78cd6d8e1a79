"""Several networks between nodes: what really connects all of them is used, and told."""

import json
import os
import secrets

import harness
from hosts import Hosts

KEY = secrets.token_hex(32)
TOLD = "echo $MASTER_ADDR $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"

# Connections to all ports on which a host listens: garbage, and silence that is held; the number of those that answered anything.
HOSTILE = """
import socket
ports = {int(line.split()[1].split(":")[1], 16) for line in open("/proc/net/tcp") if line.split()[3] == "0A"}
held, answered = [], 0
for port in ports:
    for bytes in (b"", b"GET / HTTP/1.1\\r\\n\\r\\n", b"\\x16\\x03\\x01\\xff\\xff" + b"x" * 70000) * 20:
        one = socket.create_connection(("127.0.0.1", port))
        one.settimeout(0.02)
        try:
            one.sendall(bytes)
            answered += b"node" in one.recv(100)
        except OSError:
            pass
        held.append(one)
print(len(ports), answered)
"""


class Network(harness.Case):
    def begin(self, hosts, ranks, *words, at="h1", nodes=None):
        return [hosts.start_trainyard("h%d" % (rank + 1), "run", "--storage-path", self.storage, "--name", "run", "--nnodes",
                                      nodes or len(ranks), "--node-rank", rank, "--rendezvous", "%s:29400" % at, "--num-cpus", 2,
                                      "--progress", "none", "--placement", "STRICT_SPREAD", "-n", nodes or len(ranks), *words,
                                      env={"TRAINYARD_RUN_KEY": KEY}) for rank in ranks]

    def end(self, started):
        ended = [self.finish(process) for process in started]
        for finished in ended:
            self.assert_status(0, finished)
        return ended[0]

    def told(self, finished):
        return {line.split("] ")[1] for line in finished.out.splitlines()}

    def listens(self, hosts, host):
        return any(line.split()[3] == "0A" for line in hosts.run(host, "cat", "/proc/net/tcp").out.splitlines())

    def table(self, hosts):
        status = hosts.trainyard("h1", "status", "run", "--storage-path", self.storage, "--format", "json")
        return json.loads(status.out)["network"]

    def test_one_that_does_not_connect_all_is_not_used(self):
        hosts = Hosts(self, 3, networks=2)
        cut = hosts.run("h2", "sh", "-ec", "ip route add blackhole 10.77.0.3/32; ip -6 route add blackhole fd77::3/128")
        self.assert_status(0, cut)
        for k in (1, 2, 3):  # the same address everywhere, as of a virtual bridge, and one behind which nothing is
            for name, address in (("same0", "172.17.0.1/16"), ("dead0", "10.99.0.%d/24" % k)):
                made = hosts.run(k, "sh", "-ec", "ip link add {0} type veth peer name {0}x; ip addr add {1} dev {0}; "
                                                 "ip link set {0} up; ip link set {0}x up".format(name, address))
                self.assert_status(0, made)
        ended = self.end(self.begin(hosts, (0, 1, 2), "--env", "NCCL_SOCKET_IFNAME=mine", "--", "sh", "-c", TOLD))
        table = self.table(hosts)
        address = {"10.77.1.0/24": "10.77.1.1", "fd77:1::/64": "fd77:1::1"}[table["used"]]
        self.assertEqual({"%s eth1 mine" % address}, self.told(ended))
        self.assertEqual(table["used"] + " (eth1) connects all 3 nodes: it is used", table["tried"][0])
        self.assertRegex("\n".join(table["tried"]), r"10\.77\.0\.0/24 \(eth0\) connects 1 of 3 nodes; h[23] does not reach ")
        for network in ("172.17.0.0/16 (same0)", "10.99.0.0/24 (dead0)"):
            self.assertIn(network + " connects 0 of 3 nodes; h", "\n".join(table["tried"]))
        shown = hosts.trainyard("h1", "status", "run", "--storage-path", self.storage)
        self.assertIn("network      " + table["tried"][0], shown.out)
        planned = [hosts.start_trainyard("h%d" % (rank + 1), "plan", "--nnodes", 3, "--node-rank", rank, "--rendezvous", "h1:29401",
                                         "--num-cpus", 2, "--placement", "STRICT_SPREAD", "-n", 3, "--framework", "torch", env={"TRAINYARD_RUN_KEY": KEY})
                   for rank in range(3)]
        shown = self.end(planned).out
        self.assertIn("\n\nThe network\n  " + table["tried"][0], shown)
        self.assertEqual(3, shown.count("MASTER_ADDR=%s\n" % address))

    def test_tensorflow_is_told_the_address_of_each_node(self):
        hosts = Hosts(self, 2)
        told = self.told(self.end(self.begin(hosts, (0, 1), "--framework", "tensorflow", "--", "sh", "-c", "echo $TF_CONFIG")))
        found = sorted((json.loads(text) for text in told), key=lambda one: one["task"]["index"])
        self.assertEqual([0, 1], [one["task"]["index"] for one in found])
        self.assertEqual(found[0]["cluster"], found[1]["cluster"])
        self.assertEqual(2, len({address.rpartition(":")[0] for address in found[0]["cluster"]["worker"]}))

    def test_nodes_that_were_given_their_ranks_are_tried_as_well(self):
        hosts = Hosts(self, 3, networks=2)
        cut = hosts.run("h2", "sh", "-ec", "ip route add blackhole 10.77.0.3/32; ip -6 route add blackhole fd77::3/128")
        self.assert_status(0, cut)
        line = ("torchrun", "--storage-path", self.storage, "--name", "run", "--progress", "none", "--nnodes", 3, "--rdzv-backend", "c10d",
                "--rdzv-endpoint", "h1", "--no-python", self.write("told.sh", "#!/bin/sh\necho $GROUP_RANK $GLOO_SOCKET_IFNAME\n"))
        os.chmod(os.path.join(self.place, "told.sh"), 0o755)
        started = [hosts.start_trainyard(host, *line, env={"TRAINYARD_RUN_KEY": KEY}) for host in ("h3", "h1", "h2")]
        ended = [self.finish(process) for process in started]
        self.assertEqual([0, 0, 0], [one.status for one in ended], [one.err for one in ended])
        self.assertEqual({f"{rank} eth1" for rank in range(3)}, set(ended[1].out.splitlines()))
        table = self.table(hosts)
        self.assertEqual(table["used"] + " (eth1) connects all 3 nodes: it is used", table["tried"][0])

    def test_nodes_that_nobody_reaches_are_told_in_one_line(self):
        """A packet filter lets them through to the rendezvous alone."""
        hosts = Hosts(self, 3)
        rule = "inet shut in tcp dport != 29400 tcp flags & (syn | ack) == syn drop"
        for k in (1, 2, 3):
            self.assert_status(0, hosts.run(k, "nft", "add table inet shut; add chain inet shut in { type filter hook input priority 0; }; add rule " + rule))
        ended = self.end(self.begin(hosts, (0, 1, 2), "--", "sh", "-c", TOLD))
        told = [line for line in ended.err.splitlines() if "no address of" in line]
        self.assertEqual(1, len(told), ended.err)
        self.assertRegex(told[0], r"no address of nodes h1, h2, h3 is reached by all that tried \(h[23] does not reach \S+ of h1: no answer\): "
                                  "those by which they came are used")
        self.assertEqual(1, len(self.told(ended)))

    def test_ipv6_alone(self):
        hosts = Hosts(self, 2)
        for k in (1, 2):
            hosts.run(k, "ip", "-4", "addr", "flush", "dev", "eth0")
        ended = self.end(self.begin(hosts, (0, 1), "--", "sh", "-c", TOLD, at="[fd77::1]"))
        self.assertEqual({"fd77::1 eth0 eth0"}, self.told(ended))
        self.assertEqual("fd77::/64", self.table(hosts)["used"])

    def test_a_name_of_both_families_leads_to_ipv4(self):
        hosts = Hosts(self, 2)
        ended = self.end(self.begin(hosts, (0, 1), "--", "sh", "-c", TOLD))
        self.assertEqual({"10.77.0.1 eth0 eth0"}, self.told(ended))

    def test_who_knocks_without_the_key_learns_nothing_and_harms_nothing(self):
        hosts = Hosts(self, 3)
        started = self.begin(hosts, (0, 1), "--", "sh", "-c", TOLD, nodes=3)
        self.wait_for(lambda: self.listens(hosts, "h2"), "a node that listens", started[0])
        knocked = hosts.run("h2", "python3", "-c", HOSTILE)
        self.assertEqual("1 0\n", knocked.out, repr(knocked))
        self.end(started + self.begin(hosts, (2,), "--", "true", nodes=3))


if __name__ == "__main__":
    harness.main()
