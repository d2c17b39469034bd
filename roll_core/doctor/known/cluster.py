"""Ray: starting it, joining it, placing workers on it, and losing them."""

from roll_core.findings import KnownError

CLUSTER_ERRORS: tuple[KnownError, ...] = (
    KnownError(
        (
            r"session name .{0,120}does not match",
            r"does not match persisted value",
            r"WRONGPASS",
            r"redis.{0,80}(auth|password)",
        ),
        "a port of this run, most often 6379, belongs to a Ray cluster of somebody else on this machine, and "
        "the run met it instead of its own",
        "another port for the head: MASTER_PORT on all nodes, or ray start --head --port=6380; never the "
        "neighbour's cluster",
    ),
    KnownError(
        (
            r"address already in use",
            r"errno 98\b",
            r"EADDRINUSE",
            r"port \d+ is (already )?(in use|taken|occupied)",
            r"failed to bind",
        ),
        "another process listens on that port: an earlier run that has not ended, another user's cluster, a "
        "TensorBoard",
        "`ss -ltnp | grep <port>` shows who; end it, or take another port: MASTER_PORT (6379), DASHBOARD_PORT"
        " (8265), ray start --port, --dashboard-port",
    ),
    KnownError(
        (r"AuthenticationError", r"invalid or missing authentication token"),
        "the Ray cluster asks for a token, and this process sent none or a wrong one",
        "RAY_AUTH_MODE=token, with the cluster's token in ~/.ray/auth_token or where RAY_AUTH_TOKEN_PATH says",
    ),
    KnownError(
        (
            r"version mismatch: the cluster was started with",
            r"ray: \d[\d.]+.{0,40}python: \d[\d.]+.{0,200}this process",
        ),
        "the nodes, or the driver and the cluster, have different versions of Ray or Python",
        "the same image or the same environment on every node; `ray stop` everywhere, then start again",
    ),
    KnownError(
        (
            r"could not find any running ray instance",
            r"cannot join the ray cluster",
            r"failed to connect to GCS",
            r"unable to connect to GCS",
            r"gcs.{0,60}(timed out|unavailable|deadline)",
            r"failed to connect to all addresses",
            r"StatusCode\.UNAVAILABLE",
        ),
        "no Ray head answers at that address: it is not started, has ended, is behind a firewall, or a proxy "
        "is between",
        "`ray status` on the head; port 6379 open from every node; unset RAY_ADDRESS to start a cluster of "
        "one's own; no_proxy with the head's address where http_proxy is set",
    ),
    KnownError(
        (r"AF_UNIX path length cannot exceed", r"AF_UNIX path too long"),
        "the folder of Ray's sockets has too long a path: the system allows 107 bytes",
        "RAY_TMPDIR=/tmp or another short path (TMPDIR has the same effect)",
    ),
    KnownError(
        (r"need \d+ nodes with \d+ \w+ each", r"ray_num_nodes.{0,40}cannot meet num_nodes"),
        "the cluster has fewer nodes with enough devices than the config asks for; a node with fewer devices "
        "than num_gpus_per_node does not count",
        "num_nodes and num_gpus_per_node as the cluster has them; `ray status` shows each node's devices",
    ),
    KnownError(
        (
            r"cannot be scheduled right now",
            r"no available node types can fulfill",
            r"pending creation",
            r"placement ?group.{0,80}(timed? ?out|infeasible|not ready)",
            r"insufficient resources",
            r"is infeasible",
        ),
        "Ray waits for something that the cluster does not have, such as devices under another name or more "
        "than there are",
        "`ray status`: what is demanded beside what there is. Devices are counted under the platform's own "
        "Ray resource; a node that was started before its devices could be seen must be restarted",
    ),
    KnownError(
        (r"\d+ of \d+ nodes joined", r"missing rank"),
        "a node did not join in time: it was not started, cannot reach MASTER_ADDR, or has another WORLD_SIZE or RANK",
        "RANK (0 to WORLD_SIZE-1, each once), WORLD_SIZE, MASTER_ADDR and MASTER_PORT on every node; port "
        "6379 of the head open from all of them",
    ),
    KnownError(
        (r"node '.+' has other plugins than the driver",),
        "the nodes do not have the same plugins in the same versions",
        "the same environment on every node; `roll plugins` on both shows the difference",
    ),
    KnownError(
        (r"GetTimeoutError", r"did not answer within"),
        "a worker did not answer in time: it hangs, most often in a collective whose peer has died, or it is only slow",
        "the log of each worker in logging_dir: the first one that stopped is the cause; rpc_timeout and "
        "backend_timeout where the work is known to take longer",
    ),
    KnownError(
        (
            r"(ActorDiedError|RayActorError|WorkerCrashedError|WorkerDied)",
            r"the actor died",
            r"worker died",
            r"actor .{0,40}is dead",
            r"the worker died unexpectedly",
        ),
        "a worker's process ended; what is shown here is only that it is gone",
        "that worker's log in logging_dir, its last lines; without a traceback there it was killed: `dmesg | "
        "grep -i oom`. resume_from_checkpoint=true goes on from the last whole checkpoint",
    ),
    KnownError(
        (
            r"could not serialize",
            r"cannot pickle",
            r"can't pickle",
            r"\bPicklingError",
            r"can't get attribute .{0,80}__main__",
        ),
        "something that must travel to a worker cannot: a lambda, a local or __main__ function, an open file, a lock",
        "a function at the top of a module or file, named in the config as package.module:name or ./file.py:name",
    ),
)
