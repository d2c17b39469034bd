"""Model folders, tokenizers, checkpoints, and the hub that is not asked."""

from roll_core.findings import KnownError

MODEL_ERRORS: tuple[KnownError, ...] = (
    KnownError(
        (
            r"we couldn't connect to '?https?://",
            r"LocalEntryNotFoundError",
            r"OfflineModeIsEnabled",
            r"outgoing traffic has been disabled",
            r"max retries exceeded with url",
            r"HF_HUB_OFFLINE",
            r"cannot find the requested files in the (disk|local) cache",
            r"NewConnectionError",
        ),
        "something was to be downloaded and there is no network, or HF_HUB_OFFLINE=1 forbids it",
        "fetch the model where there is a network, copy its folder, and write the path (`pretrain: "
        "/models/my-model`); models are read from local folders only",
    ),
    KnownError(
        (
            r"GatedRepoError",
            r"RepositoryNotFoundError",
            r"repository not found for url",
            r"401 client error",
            r"403 client error",
            r"is not a local folder and is not a valid model identifier",
        ),
        "the hub has no such model, or not for this account; or a local path is misspelt and was taken for a hub name",
        "an absolute path of a local folder; a gated model needs its licence accepted and HF_TOKEN when it is fetched",
    ),
    KnownError(
        (
            r"does not appear to have a file named",
            r"there is no such folder; models are read",
            r"no config\.json",
            r"no file named .{0,60}(safetensors|pytorch_model)",
        ),
        "the folder is no model, is empty, or was not wholly copied",
        "the folder that save_pretrained wrote: config.json, weights, tokenizer files; the same path on every node",
    ),
    KnownError(
        (
            r"SafetensorError",
            r"error while deserializing header",
            r"MetadataIncompleteBuffer",
            r"HeaderTooLarge",
            r"invalid load key, 'v'",
        ),
        "a weight file is cut short, or is the small pointer that git leaves where git-lfs did not run",
        "compare the sizes of the files with their source, and fetch them anew (git lfs pull)",
    ),
    KnownError(
        (
            r"does not recognize this architecture",
            r"KeyError: '(qwen|llama|deepseek|glm|mistral|gemma)\w*'",
            r"unrecognized (model|configuration class)",
            r"has no attribute '\w+ForCausalLM'",
        ),
        "the installed transformers is older than the model",
        "pip install --upgrade transformers within the range of `roll doctor`; config.json names the version "
        "it was written by",
    ),
    KnownError(
        (
            r"untagged enum (ModelWrapper|PyPreTokenizerTypeWrapper)",
            r"couldn't instantiate the backend tokenizer",
            r"tokenizer class .{0,60}does not exist",
            r"(need|requires?).{0,40}(sentencepiece|tiktoken)",
            r"error.{0,40}tokenizer\.json",
        ),
        "the tokenizer's files were written by a newer tokenizers, or need a package that is not there",
        "pip install --upgrade tokenizers transformers (together); sentencepiece or tiktoken where it is "
        "named; tokenizer.json whole in the model's folder",
    ),
    KnownError(
        (
            r"tokenizer\.chat_template is not set",
            r"chat template refused",
            r"cannot use chat template",
            r"conversation roles must alternate",
        ),
        "the tokenizer has no chat template, or its template does not take these messages (two turns of a "
        "kind, a system turn)",
        "data_args.template with a named one, such as qwen2_5; messages that begin with system or user, "
        "alternate and end with user",
    ),
    KnownError(
        (r"just got forked, after parallelism has already been used", r"TOKENIZERS_PARALLELISM"),
        "tokenizers had started threads before a process was forked, and stops using them; only a warning",
        "TOKENIZERS_PARALLELISM=false silences it",
    ),
    KnownError(
        (
            r"flash_?attn.{0,60}(not (be )?installed|cannot be|no module)",
            r"no module named '?flash_attn",
            r"FlashAttention2? .{0,60}(cannot be used|not.{0,20}installed|toggled on)",
        ),
        "attention of the package flash_attn is asked for, and it is not installed or does not fit this device",
        "model_args.attn_implementation: sdpa, or leave the key out: the platform's best is taken",
    ),
    KnownError(
        (
            r"weights only load failed",
            r"UnpicklingError",
            r"PytorchStreamReader failed",
            r"checkpoint.{0,80}cannot be read",
            r"no checkpoint at",
            r"CheckpointError",
            r"was never finished",
        ),
        "a checkpoint is not there, was cut short by a kill or a full disk, or was written by another version",
        "resume_from_checkpoint=true takes the newest whole one; the message lists those that are there",
    ),
    KnownError(
        (r"FileExistsError.{0,80}checkpoint", r"another run is writing to"),
        "two runs write to the same folder",
        "another exp_name or output_dir for one of them, or wait for the other to end",
    ),
)
