"""Errors that users of this kind of software meet on any device, by topic, the more particular ones first."""

from roll_core.doctor.known.cluster import CLUSTER_ERRORS
from roll_core.doctor.known.collectives import COLLECTIVE_ERRORS
from roll_core.doctor.known.data import DATA_ERRORS
from roll_core.doctor.known.devices import DEVICE_ERRORS
from roll_core.doctor.known.engines import ENGINE_ERRORS
from roll_core.doctor.known.installation import INSTALLATION_ERRORS
from roll_core.doctor.known.models import MODEL_ERRORS
from roll_core.doctor.known.resources import RESOURCE_ERRORS
from roll_core.doctor.known.rewards import REWARD_ERRORS
from roll_core.findings import KnownError

KNOWN_ERRORS: tuple[KnownError, ...] = (
    *RESOURCE_ERRORS,
    *CLUSTER_ERRORS,
    *COLLECTIVE_ERRORS,
    *DEVICE_ERRORS,
    *ENGINE_ERRORS,
    *MODEL_ERRORS,
    *DATA_ERRORS,
    *REWARD_ERRORS,
    *INSTALLATION_ERRORS,
)
