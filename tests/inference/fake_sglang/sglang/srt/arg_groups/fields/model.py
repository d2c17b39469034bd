"""Some of the fields of SGLang's ServerArgs."""

from typing import Annotated, Any


class Model:
    """Namespace `model`."""

    _NS_PATH = "model"

    model_path: Annotated[str, "The path of the model weights."]
    load_format: Annotated[str, "The format of the model weights to load."] = "auto"
    dtype: Annotated[str, "Data type."] = "auto"
    random_seed: Annotated[int | None, "The random seed."] = None
    tp_size: Annotated[int, "Tensor parallel size."] = 1
    pp_size: Annotated[int, "Pipeline parallel size."] = 1
    custom_weight_loader: Annotated[list[str] | None, "Loaders."] = None
    skip_tokenizer_init: Annotated[bool, "No tokenizer."] = False
    enable_deterministic_inference: Annotated[bool, "Reads seeds."] = False
    enable_memory_saver: Annotated[bool, "Can release memory."] = False
    enable_weights_cpu_backup: Annotated[bool, "Keeps released weights."] = False
    mem_fraction_static: Annotated[float | None, "Share of the device."] = None
    context_length: Annotated[int | None, "Longest text."] = None


class Bag:
    """No namespace: its fields are no arguments."""

    stranger: Any = None
