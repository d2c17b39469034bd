"""Errors that users of NPUs have met: ROLL's FAQ for Ascend, its RLVR guide, and public reports of other projects."""

from roll_ascend.install_errors import INSTALL_ERRORS
from roll_ascend.network_errors import NETWORK_ERRORS
from roll_ascend.run_errors import RUN_ERRORS

KNOWN_ERRORS = (*INSTALL_ERRORS, *NETWORK_ERRORS, *RUN_ERRORS)
