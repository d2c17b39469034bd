"""Data files and configs."""

from roll_core.findings import KnownError

DATA_ERRORS: tuple[KnownError, ...] = (
    KnownError(
        (
            r"ArrowInvalid",
            r"couldn't cast .{0,60} to",
            r"JSON parse error: column.{0,40}changed from",
            r"DatasetGenerationError",
        ),
        "a column has values of different types in different rows or files, such as a number and a text",
        "one type per column, in all files; ground_truth may be a number or a text here, each row for itself",
    ),
    KnownError(
        (
            r"reward (function )?(is )?not implemented for",
            r"tag .{0,60}(nobody|no domain|no reward)",
            r"no reward for domain",
            r"unknown tag",
        ),
        "rows carry a tag (or data source) that no reward is configured for",
        "the tag in tag_included of one of `rewards`; upper case and trailing blanks count",
    ),
    KnownError(
        (r"JSONDecodeError", r"expecting (value|property name|',' delimiter)", r"extra data: line", r"not JSON"),
        "a line of a data file is no JSON: a whole JSON list instead of a row per line, a trailing comma, or "
        "an empty file",
        "one JSON object per line; `roll check CONFIG` names file and line",
    ),
    KnownError(
        (r"no prompt is left to train on", r"\bStopIteration\b", r"num_samples should be a positive integer"),
        "after rows were dropped (too long, filtered) fewer prompts are left than a step needs",
        "a larger prompt_length, more rows, or a smaller rollout_batch_size; the start of the log counts what"
        " was dropped",
    ),
    KnownError(
        (r"generated too many", r"num_gen_batches", r"zero[_ ]std", r"gave up after .{0,40}prompts", r"groups? usable"),
        "nearly all groups of answers score alike, all right or all wrong, and the filter drops them",
        "easier or harder data for this model, a higher temperature, a larger num_return_sequences_in_group, "
        "or query_filter_config.type: no_filter; the share of all-right and all-wrong groups is in the "
        "metrics",
    ),
    KnownError(
        (
            r"mapping values are not allowed here",
            r"found character '\\t'",
            r"could not find expected ':'",
            r"while parsing a (block|flow) ",
            r"ScannerError|ParserError",
        ),
        "the YAML file cannot be read: a tab, a missing blank after a colon, or an indent that does not fit",
        "blanks instead of tabs; the line of the message, or the one before it",
    ),
    KnownError(
        (
            r"InterpolationKeyError",
            r"interpolation key .{0,60}not found",
            r"could not override",
            r"ConfigCompositionException",
        ),
        "the config refers with ${...} to a key that is not there, or an override names one",
        "`roll check CONFIG` lists such keys with what was probably meant",
    ),
)
