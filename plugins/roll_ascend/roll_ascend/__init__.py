"""Huawei Ascend NPUs as a platform of roll-core."""
