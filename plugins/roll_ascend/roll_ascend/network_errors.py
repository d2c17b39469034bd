"""Errors between processes and nodes: HCCL, Ray, shared storage."""

from roll_core.findings import KnownError

LINKS = (
    "On each node: hccn_tool -i N -link -g must say up for every card; -ip -g must show an address, no two alike; "
    "-tls -g must be alike everywhere (hccn_tool -i N -tls -s enable 0). Across nodes: hccn_tool -i 0 -ping -g address "
    "PEER. Then firewall, HCCL_CONNECT_TIMEOUT (this plugin sets 3600 seconds), and whether a rank died before."
)

NETWORK_ERRORS = (
    KnownError(
        (
            r"have already been bound",
            r"EJ0003",
            r"port.*16666",
            r"bind.*(16666|6000\d|6001\d).*fail",
        ),
        "Two processes on one card open the same HCCL port: 16666 on the card, 60000 to 60015 on the host by default.",
        "HCCL_NPU_SOCKET_PORT_RANGE=auto, which workers get unless somebody sets it; on the host another "
        "HCCL_IF_BASE_PORT, or HCCL_HOST_SOCKET_PORT_RANGE=auto where no engine runs on Atlas A2.",
    ),
    KnownError(
        (
            r"EI0006",
            r"LINK_ERROR_INFO",
            r"wait socket establish timeout",
            r"Hccl execute failed",
            r"HcclCommInitRootInfo",
            r"Getting socket times? out",
        ),
        "Ranks did not connect in time: a link is down, addresses or TLS differ, a firewall drops packets, or a peer "
        "was still loading or had already died.",
        LINKS,
    ),
    KnownError(
        (r"EI0002", r"notify wait.*time ?out", r"HCCL.*(exec|execution).*time ?out"),
        "A collective did not end in time: another rank is late, stuck or dead. With HCCL_OP_EXPANSION_MODE=AIV the "
        "limit is 1091 seconds, whatever HCCL_EXEC_TIMEOUT says.",
        "Read the logs of the other ranks first: the one without this message is the cause. Else unset "
        "HCCL_OP_EXPANSION_MODE, or raise HCCL_EXEC_TIMEOUT.",
    ),
    KnownError(
        (r"EI0001", r"environment variable .*HCCL_\w+.* is invalid", r"\[HCCL_ENV\]"),
        "HCCL refuses the value of an environment variable.",
        "Look at the finding `values of variables`: HCCL_CONNECT_TIMEOUT is 120 to 7200 seconds, HCCL_BUFFSIZE is MB "
        "and not bytes, HCCL_IF_BASE_PORT is 1024 to 65520.",
    ),
    KnownError(
        (r"RoCE|RoCEv2", r"RDMA.*(retry|retransmission|cqe)", r"error cqe"),
        "Packets between nodes are lost: the switch does not pass priority flow control and congestion marks.",
        "Have PFC and ECN enabled on the switch, HCCL_SOCKET_IFNAME alike on every node (ip route get CARD_ADDRESS "
        "names the interface), HCCL_IF_BASE_PORT open, and timeouts of 7200 seconds.",
    ),
    KnownError(
        (r"nodes have joined so far", r"Failed to connect to GCS", r"of \d+ nodes joined"),
        "A node has not joined the Ray cluster: MASTER_ADDR or RANK is wrong, or a port is closed.",
        "nc -zv MASTER_ADDR 6379 from that node; open 6379, 8265, 23456 and 10002 to 19999 between nodes; RANK differs "
        "on each, WORLD_SIZE is alike.",
    ),
    KnownError(
        (r"(worker|node).*(exit(ed|s)? (immediately|at once|with code 0)|sys\.exit\(0\))",),
        "Nothing is wrong: a node other than the head joins the cluster and its command ends; its Ray processes stay.",
        "ray status on the head shows the NPUs of every node.",
    ),
    KnownError(
        (
            r"No such file or directory: '?/\S*(models?|data|checkpoint)",
            r"(Repo id must be|is not a local folder and is not a valid model identifier)",
        ),
        "A node does not see the model or the data under the path that the config names.",
        "Mount one shared file system at the same path on every node and in every container.",
    ),
    KnownError(
        (
            r"(cannot be scheduled|infeasible|pending).*['\"{ ]GPU\b",
            r"placement group.*GPU",
            r"No available node types can fulfill.*GPU",
        ),
        "Something asks Ray for GPU where the cluster offers NPU.",
        "`platform: npu`, and no num_gpus= in code of your own: the platform asks for resources={'NPU': n}.",
    ),
)
