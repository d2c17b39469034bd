"""How new weights get from a trainer to its engines."""

from roll_core.weights.base import WeightManifest, WeightReceiver, WeightSender, digest_of

__all__ = ["WeightManifest", "WeightReceiver", "WeightSender", "digest_of"]
