"""Rewards and graders."""

from roll_core.findings import KnownError

REWARD_ERRORS: tuple[KnownError, ...] = (
    KnownError(
        (
            r"could not deserialize ATN",
            r"ANTLR (runtime and generated|tool) .{0,60}(disagree|version|match)",
            r"FUNC_GAMMA",
            r"antlr4-python3-runtime",
            r"math_rule grades answer",
            r"unsupported antlr4? version",
        ),
        "the LaTeX parser of the grader and its run time do not fit: hydra-core and omegaconf need "
        "antlr4-python3-runtime 4.9, and a parser made for another version then grades percent signs wrongly "
        "without a word",
        "pip install 'math-verify[antlr4_9_3]==0.9.0'; `roll doctor` repeats the grader's self-test",
    ),
    KnownError(
        (r"signal only works in main thread", r"signal\.alarm", r"set_wakeup_fd only works in main thread"),
        "a grader that limits its time with signals was called outside the main thread, where it cannot",
        "math_rule here grades in processes of its own; for a reward of your own leave the limit to "
        "timeout_s, and turn the library's off (math-verify: timeout_seconds=None)",
    ),
    KnownError(
        (r"fails its self-test", r"would give wrong verdicts"),
        "the grader gives wrong verdicts on known answers with the packages installed here; a run would learn"
        " from them",
        "pip install 'math-verify[antlr4_9_3]==0.9.0', then `roll doctor`",
    ),
    KnownError(
        (
            r"returned \d+ scores for \d+ samples",
            r"returned .{0,40}rewards? .{0,40}expected",
            r"one score per sample",
            r"reward.{0,60}(shape|length).{0,40}mismatch",
        ),
        "a reward returned another number of scores than there are samples",
        "exactly one score per sample; `roll score --reward file.py:name answers.jsonl` tries it on a file",
    ),
    KnownError(
        (r"exceeds the limit \(\d+ digits\) for integer string conversion",),
        "an answer is a number of more than 4300 digits, which Python does not turn into text",
        "in a reward of your own, compare numbers and not their text; math_rule counts such an answer as wrong",
    ),
    KnownError(
        (r"resource .{0,20}punkt(_tab)?.{0,20} not found", r"nltk\.download"),
        "a grader of instructions needs data of nltk, which was to be downloaded",
        "fetch it where there is a network (python -m nltk.downloader punkt_tab) and set NLTK_DATA to its folder",
    ),
    KnownError(
        (
            r"(api_key|api key) .{0,40}(not|must be)",
            r"wandb.{0,40}(CommError|UsageError|not configured)",
            r"CommError",
            r"swanlab.{0,60}(login|api)",
        ),
        "a tracker cannot reach its service or has no key for it",
        "track_with: tensorboard needs neither network nor key; WANDB_MODE=offline writes to files",
    ),
)
