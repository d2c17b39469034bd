"""Running out of something: memory, disk, shared memory, files, processes."""

from roll_core.findings import KnownError

RESOURCE_ERRORS: tuple[KnownError, ...] = (
    KnownError(
        (r"ray\.exceptions\.OutOfMemoryError", r"node running low on memory", r"killed .{0,40}by the memory monitor"),
        "the node's main memory was nearly full, and Ray ended a worker before the kernel would",
        "fewer or smaller processes on the node: a smaller rewards.<domain>.world_size, fewer engines; or "
        "more memory. RAY_memory_usage_threshold=0.98 moves the limit, RAY_memory_monitor_refresh_ms=0 turns "
        "it off",
    ),
    KnownError(
        (
            r"oom[-_]?kill",
            r"out of memory: killed process",
            r"exit(ed with)? (code|status):? ?137",
            r"SYSTEM_ERROR.{0,200}end of file",
            r"connection error code 2\. end of file",
            r"signal 9\b",
            r"SIGKILL",
        ),
        "a process was killed from outside, most often by the kernel because main memory was full; it leaves "
        "no traceback of its own",
        "`dmesg | grep -i oom` on that node, and a container's memory limit, show it. Then fewer processes, "
        "smaller rollout_batch_size, no offloading to main memory, or more memory",
    ),
    KnownError(
        (
            r"DataLoader worker .{0,40}killed by signal: Bus error",
            r"\bbus error\b",
            r"unable to (open|mmap) shared memory",
            r"unable to write to file </torch_",
            r"shm_open.{0,80}(failed|no space)",
        ),
        "shared memory (/dev/shm) is full; containers get 64 MiB of it by default",
        "docker run --ipc=host, or --shm-size=16g; `roll doctor` shows how much there is",
    ),
    KnownError(
        (r"ObjectStoreFullError", r"object store is full", r"failed to put object .{0,80}store", r"OutOfDiskError"),
        "Ray's object store is full, and so is the disk it spills to: batches are kept longer than they are "
        "needed, or the store is too small for one batch",
        "more shared memory (docker run --shm-size) and disk (RAY_TMPDIR on another one), or a smaller "
        "rollout_batch_size",
    ),
    KnownError(
        (r"is over \d+(\.\d+)?% full", r"local_fs_capacity_threshold"),
        "the disk with Ray's files is used to more than 95 %, and Ray makes no more objects there",
        "delete old /tmp/ray/session_* folders, or RAY_TMPDIR=<a folder on another disk>",
    ),
    KnownError(
        (r"no space left on device", r"errno 28\b", r"ENOSPC", r"disk quota exceeded"),
        "a disk is full (or its quota is used up); it may be the one of checkpoints, of /tmp, or /dev/shm",
        "`df -h . /tmp /dev/shm` tells which; checkpoint_config.output_dir, RAY_TMPDIR or --shm-size for it. "
        "A checkpoint that was not finished is never resumed from",
    ),
    KnownError(
        (r"too many open files", r"errno 24\b", r"EMFILE"),
        "this user's limit of open files is reached; every connection between processes is one",
        "ulimit -n 65536 before the start, or docker run --ulimit nofile=65536:65536",
    ),
    KnownError(
        (
            r"resource temporarily unavailable",
            r"can't start new thread",
            r"pthread_create failed",
            r"errno 11\b",
            r"cannot fork",
        ),
        "this user's limit of processes and threads is reached, or the container's",
        "OMP_NUM_THREADS=1, fewer workers, `ulimit -u` or docker run --pids-limit=-1",
    ),
    KnownError(
        (
            r"cannot allocate memory(?! in static TLS)",
            r"errno 12\b",
            r"^MemoryError\b",
            r"\bMemoryError:",
            r"DefaultCPUAllocator: can't allocate memory",
            r"DefaultCPUAllocator: not enough memory",
        ),
        "main memory is full",
        "fewer processes, a smaller model or micro-batch, fp32 replaced by bf16, or more memory; `roll check`"
        " estimates what a config needs",
    ),
    KnownError(
        (r"read-only file system",),
        "a folder that the run writes to is mounted read-only",
        "output_dir, logging_dir and checkpoint_config.output_dir on a disk that can be written; with docker,"
        " a volume without `:ro`",
    ),
    KnownError(
        (r"permission denied.{0,20}'?/tmp/ray", r"PermissionError.{0,80}/tmp/ray"),
        "/tmp/ray belongs to another user of this machine",
        "RAY_TMPDIR=<a folder of your own>, with a short path",
    ),
)
