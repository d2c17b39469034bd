"""The processes of TransferQueue: starting them, one client of them per process, and knowing when one has died.

TransferQueue waits without end in several cases (a controller that died, in 0.1.6 also a storage unit), so every
call here runs in a thread of its own with a deadline, while somebody looks whether its processes still live.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from roll_core.errors import RollError
from roll_core.transport import DataLost, TransportTimeout
from roll_transferqueue.config import TransferQueueConfig

Result = TypeVar("Result")

CONTROLLER = "TransferQueueController"
CONTROLLER_NAMESPACE = "transfer_queue"
"""Since 0.1.7; before, the controller was in the namespace of who started it, where the units still are."""
LOOK_S = 2.0
"""How often a call that takes long looks whether everybody lives."""

_clients: dict[tuple[int, str], Any] = {}
"""One client per process and controller: each has threads and sockets. A forked process makes its own."""
_clients_lock = threading.Lock()


@dataclass(frozen=True)
class Service:
    """A running TransferQueue, as its clients need to know it; plain data."""

    settings: TransferQueueConfig
    namespace: str
    unit_names: tuple[str, ...]
    published: Any = field(repr=False)
    """The config that TransferQueue completed with addresses."""
    reservations: tuple[str, ...] = ()
    """Placement groups of Ray that it made for its units and leaves behind."""

    def call(self, what: str, function: Callable[[Any], Result]) -> Result:
        """The result of a call on this process's client, within the deadline.

        Raises:
            DataLost: a process of TransferQueue has died.
            TransportTimeout: none has, and the call did not end in time.
        """
        try:
            return _within(self, what, self.settings.timeout_s, lambda: function(_client(self)))
        except (RollError, KeyError):
            raise
        except Exception as error:
            raise_if_dead(self, error)
            if "no answer in" in str(error):
                raise TransportTimeout(_no_answer(what, self.settings.timeout_s)) from error
            raise

    def is_reachable(self) -> bool:
        """Whether this process is in a session of Ray, without which nothing is known of its processes."""
        import ray

        return bool(ray.is_initialized())

    def forget_client(self) -> None:
        """Make a new client for the next call: one whose call never ended cannot be used again."""
        with _clients_lock:
            _clients.pop((os.getpid(), self.published.controller.zmq_info.id), None)


def library(settings: TransferQueueConfig) -> Any:
    """The package, which reads its timeouts when it is imported.

    Raises:
        RollError: it is not installed, or does not support this Python.
    """
    os.environ.setdefault("TQ_SIMPLE_STORAGE_SEND_RECV_TIMEOUT", str(max(1, round(settings.timeout_s))))
    # Its own repetitions would make three deadlines of one.
    os.environ.setdefault("TQ_SIMPLE_STORAGE_MAX_ATTEMPTS", "1")
    try:
        import transfer_queue
    except ImportError as error:
        raise RollError(_cannot_import(error)) from error
    return transfer_queue


def start(settings: TransferQueueConfig) -> Service:
    """Start the controller and the storage units.

    Raises:
        RollError: Ray is missing or too small, or another TransferQueue runs in the cluster.
    """
    import ray

    if not ray.is_initialized():
        raise RollError("TransferQueue needs Ray, and Ray has not been started\n  try: ray.init() before")
    has = ray.cluster_resources().get("CPU", 0)
    if has < settings.num_processes:
        # TransferQueue would wait for them without end.
        raise RollError(
            f"TransferQueue asks for {settings.num_processes} logical CPUs of Ray, one for its controller and one per "
            f"storage unit, and the cluster has {has:g}\n"
            "  try: fewer num_data_storage_units, or a larger num_cpus where Ray is started"
        )
    namespace = ray.get_runtime_context().namespace
    if _controller(namespace) is not None:
        raise RollError(
            "another TransferQueue runs in this Ray cluster, and there can be one only"
            "\n  try: a cluster of its own for this run, or end the other"
        )
    tq = library(settings)
    from omegaconf import OmegaConf

    limit, before = settings.start_timeout_s, _reservations(settings)
    published = _within(None, "starting TransferQueue", limit, lambda: tq.init(OmegaConf.create(settings.published())))
    units = settings.num_processes - 1
    names = tuple(f"TransferQueueStorageUnit#{number}" for number in range(units))
    made = tuple(sorted(_reservations(settings) - before))
    service = Service(settings, namespace, names, published, made)
    with _clients_lock:
        _clients[os.getpid(), published.controller.zmq_info.id] = tq.get_client()
    return service


def stop(service: Service) -> None:
    """End the processes, from the process that started them."""
    service.forget_client()
    tq = library(service.settings)
    _within(None, "ending TransferQueue", service.settings.timeout_s, tq.close)
    if service.is_reachable():
        _give_back(service.reservations)
    # It only asks Ray to end them, and until that is done they answer.
    deadline = time.monotonic() + service.settings.timeout_s
    while service.is_reachable() and time.monotonic() < deadline:
        if len(dead_processes(service)) == service.settings.num_processes:
            break
        time.sleep(0.05)


def _reservations(settings: TransferQueueConfig) -> set[str]:
    """Placement groups such as 0.1.6 makes, by id: a CPU for each storage unit, spread over the nodes."""
    import ray

    wanted = [{"CPU": 1.0}] * (settings.num_processes - 1)
    return {
        name
        for name, one in ray.util.placement_group_table().items()
        if one["state"] != "REMOVED" and one["strategy"] == "SPREAD" and list(one["bundles"].values()) == wanted
    }


def _give_back(reservations: Sequence[str]) -> None:
    # 0.1.6 leaves them, and whoever next asks for these CPUs in the same cluster waits without end.
    import ray
    from ray.util.placement_group import PlacementGroup

    for name in reservations:
        ray.util.remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(name)))


def dead_processes(service: Service) -> list[str]:
    """Names of its processes that have ended, as far as Ray knows at once."""
    import ray

    if not service.is_reachable():
        return []  # A forked process, which cannot ask.
    handles = {CONTROLLER: _controller(service.namespace)}
    handles |= {name: _actor(name, service.namespace) for name in service.unit_names}
    dead = [name for name, handle in handles.items() if handle is None]
    asked = {handle.__ray_ready__.remote(): name for name, handle in handles.items() if handle is not None}
    ready, _busy = ray.wait(list(asked), num_returns=len(asked), timeout=1.0) if asked else ([], [])
    for reference in ready:
        try:
            ray.get(reference)
        except ray.exceptions.RayActorError:
            dead.append(asked[reference])
    return dead


def raise_if_dead(service: Service, error: Exception | None = None) -> None:
    """Tell which of its processes have died, if any.

    Raises:
        DataLost: some have.
    """
    dead = dead_processes(service)
    if dead:
        service.forget_client()
        raise DataLost(
            f"processes of TransferQueue have died: {', '.join(dead)}"
            "\n  their rows are lost; the logs are in the session folder of Ray"
            "\n  try: resume from the last checkpoint"
        ) from error


def _client(service: Service) -> Any:
    key = (os.getpid(), service.published.controller.zmq_info.id)
    with _clients_lock:
        if key not in _clients:
            library(service.settings)
            from transfer_queue.client import TransferQueueClient

            backend = service.settings.backend.storage_backend
            client = TransferQueueClient(f"roll-{os.getpid()}", service.published.controller.zmq_info)
            client.initialize_storage_manager(manager_type=backend, config=service.published.backend[backend])
            _clients[key] = client
        return _clients[key]


def _within(service: Service | None, what: str, limit_s: float, function: Callable[[], Result]) -> Result:
    results: list[Result] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)
        done.set()

    threading.Thread(target=call, daemon=True, name=f"transferqueue-{what}").start()
    deadline = time.monotonic() + limit_s
    while not done.wait(min(LOOK_S, max(0.0, deadline - time.monotonic()))):
        if service is not None:
            raise_if_dead(service)
        if time.monotonic() >= deadline:
            if service is not None:
                service.forget_client()
            raise TransportTimeout(_no_answer(what, limit_s))
    if errors:
        raise errors[0]
    return results[0]


def _no_answer(what: str, limit_s: float) -> str:
    return (
        f"TransferQueue: {what} did not end within {limit_s:g} s, and its processes live"
        "\n  try: a larger timeout_s in transfer_backend.backend_config, or fewer bytes at a time"
    )


def _controller(namespace: str) -> Any:
    return _actor(CONTROLLER, CONTROLLER_NAMESPACE) or _actor(CONTROLLER, namespace)


def _actor(name: str, namespace: str) -> Any:
    import ray

    try:
        return ray.get_actor(name, namespace=namespace)
    except ValueError:
        return None


def _cannot_import(error: ImportError) -> str:
    python = platform.python_version()
    try:
        metadata = importlib.metadata.metadata("TransferQueue")
    except importlib.metadata.PackageNotFoundError:
        return f"the package TransferQueue is not installed for Python {python}\n  try: pip install TransferQueue"
    from packaging.specifiers import SpecifierSet

    wanted = metadata.get("Requires-Python") or ""
    if not SpecifierSet(wanted).contains(python, prereleases=True):
        return (
            f"TransferQueue {metadata['Version']} supports Python {wanted}, and this is {python}"
            "\n  try: that Python, or transfer_backend: {backend_name: ray}"
        )
    return (
        f"TransferQueue {metadata['Version']} cannot be imported on Python {python}\n  cause: {error}"
        "\n  try: pip check; before 0.1.7 it needs numpy<2, and with that pyarrow<26"
    )
