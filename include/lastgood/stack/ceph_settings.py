"""How one Ceph node is configured for tests and the demo: everything in memory, on loopback,
without a manager.

What matters most: `tcp_nodelay` (without it a small request waits 40 ms for its answer), Paxos
without its waiting times (a start in 2 s), one replica, no authentication between the daemons, and
garbage collected after seconds instead of hours.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

MEMORY_GIB = 6  # a limit, not a reservation
KMS_KEY = "testkey-1"

_TEMPLATE = """\
[global]
fsid = {fsid}
mon initial members = a
mon host = v2:127.0.0.1:{mon_port}/0
public network = 127.0.0.0/8
public addr = 127.0.0.1
ms bind ipv6 = false
ms bind msgr1 = false
ms mon client mode = crc
ms async op threads = 2
auth cluster required = none
auth service required = none
auth client required = none
keyring = {folder}/keyring
run dir = {folder}/run
pid file = {folder}/run/$name.pid
admin socket = {folder}/run/$name.asok
crash dir = {folder}/run
log file = {folder}/log/$name.log
log to stderr = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
paxos propose interval = 0.05
paxos min wait = 0.02

[mon]
mon data = {folder}/mon
mon cluster log file = {folder}/log/cluster.log
mon data avail warn = 2
mon data avail crit = 1
auth allow insecure global id reclaim = false

[osd]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = {memory_gib}G
memstore page set = false
osd op num shards = 2
osd op num threads per shard = 2
osd class load list = *
osd class default list = *

[client.rgw]
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{s3_port} tcp_nodelay=1
rgw thread pool size = 32
rgw dynamic resharding = false
rgw override bucket index max shards = 1
rgw enable usage log = false
rgw gc obj min wait = 5
rgw gc processor period = 5
rgw gc processor max time = 5
rgw crypt require ssl = false
rgw crypt s3 kms backend = testing
rgw crypt s3 kms encryption keys = {kms_key}=YmluCmJvb3N0CmJvb3N0LWJ1aWxkCmNlcGguY29uZgo=
"""


def configuration(folder: Path, fsid: UUID, *, mon_port: int, s3_port: int) -> str:
    """The text of `ceph.conf` for a cluster whose files all lie in `folder`."""
    return _TEMPLATE.format(
        folder=folder,
        fsid=fsid,
        mon_port=mon_port,
        s3_port=s3_port,
        memory_gib=MEMORY_GIB,
        kms_key=KMS_KEY,
    )
