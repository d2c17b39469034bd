"""The simulated NPU under the name of the real package: whoever has this folder on the path has the device.

It offers the part of torch_npu that roll-core and transformers use. All work is done when it is given, on the host, so
this finds wrong devices, ids, backends and calls, and does not find missing synchronisation or anything about speed.
"""

from __future__ import annotations

IS_SIMULATED = True
__version__ = "2.13.0"


def _autoload() -> None:
    """What torch calls at the end of its own import; importing this module has done it all."""


import torch  # noqa: E402

from torch_npu import _load, _other_vendors, npu  # noqa: E402
from torch_npu._attention import npu_fusion_attention  # noqa: E402

_C = _load.extension

__all__ = ["IS_SIMULATED", "npu", "npu_fusion_attention"]

torch.utils.rename_privateuse1_backend("npu")
torch._register_device_module("npu", npu)
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
_load.register_collectives()
_other_vendors.refuse()
