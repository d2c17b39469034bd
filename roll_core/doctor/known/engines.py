"""Inference engines: their memory, their lengths, their weights."""

from roll_core.findings import KnownError

ENGINE_ERRORS: tuple[KnownError, ...] = (
    KnownError(
        (
            r"no available memory for the cache blocks",
            r"larger than the maximum number of tokens that can be stored in KV",
            r"free memory on device.{0,120}less than desired",
            r"kv cache.{0,80}(needed|larger|not enough)",
            r"estimated maximum model length",
        ),
        "beside the weights there is too little device memory for the engine's cache of keys and values",
        "a smaller max_model_len (prompt_length + response_length is enough); a larger "
        "gpu_memory_utilization, or a smaller one where a trainer shares the device; tensor_parallel_size "
        "raised",
    ),
    KnownError(
        (
            r"max_model_len.{0,120}(greater|larger) than the derived",
            r"longer than the maximum model length",
            r"maximum context length",
            r"exceeds? .{0,20}max_model_len",
            r"sequence length is longer than the specified maximum sequence length",
        ),
        "a prompt, or prompt and response together, is longer than the model or the engine was set up for",
        "prompt_length + response_length at most max_model_len, and that at most max_position_embeddings of the model",
    ),
    KnownError(
        (
            r"WeightSyncError",
            r"weights? of version .{0,60}(not those|did not confirm)",
            r"size mismatch for",
            r"(missing|unexpected) key\(?s\)? in state_dict",
        ),
        "the weights that arrived are not those of the model that receives them: another architecture, size or name",
        "one model folder for actor_train and actor_infer; a checkpoint of the same model; tie_word_embeddings alike",
    ),
    KnownError(
        (r"IllegalOrder", r"while (it is )?asleep", r"asked to .{0,40}while"),
        "an engine was asked for something its state forbids, such as new weights or answers while its memory"
        " is given away",
        "report it with the worker's log; sleeping can be turned off by roles that share no device",
    ),
    KnownError(
        (r"(illegal memory access|segmentation fault|core dumped|signal 11\b|SIGSEGV)",),
        "compiled code crashed: most often packages built for other versions of each other",
        "`roll doctor` for versions; PYTHONFAULTHANDLER=1 shows where; engines: enforce_eager: true to leave "
        "compiled graphs out",
    ),
)
