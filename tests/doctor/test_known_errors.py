"""Each known error is found by texts that users saw, and by no other one's."""

from __future__ import annotations

import re

import pytest

from roll_core.doctor.explain import explain
from roll_core.doctor.known import KNOWN_ERRORS
from roll_core.plugins import load_plugins

# A text as it stands in a log, and words of the cause that must come first.
SEEN = [
    ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "Ray ended a worker"),
    ("Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. "
     "End of file.", "killed from outside"),
    ("[12345.6] Out of memory: Killed process 4242 (ray::TrainWorker)", "killed from outside"),
    ("subprocess.CalledProcessError: exit status 137", "killed from outside"),
    ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error.", "shared memory"),
    ("RuntimeError: unable to write to file </torch_123_456_0>: No space left on device (28)", "shared memory"),
    ("ray.exceptions.ObjectStoreFullError: Failed to put object ab12 in object store", "object store is full"),
    ("(raylet) file_system_monitor.cc:111: /tmp/ray/session_1 is over 95% full, available space: 9.1 GB",
     "used to more than 95 %"),
    ("OSError: [Errno 28] No space left on device: 'output/models/checkpoint-20.partial'", "a disk is full"),
    ("OSError: [Errno 24] Too many open files", "limit of open files"),
    ("RuntimeError: can't start new thread", "processes and threads"),
    ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "processes and threads"),
    ("RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried to "
     "allocate 8589934592 bytes.", "main memory is full"),
    ("OSError: [Errno 30] Read-only file system: '/data/output'", "mounted read-only"),
    ("PermissionError: [Errno 13] Permission denied: '/tmp/ray/session_latest'", "another user"),
    ("Session name session_2026 does not match persisted value b'session_2025'. Perhaps there was an error "
     "connecting to Redis.", "somebody else"),
    ("OSError: [Errno 98] Address already in use", "another process listens"),
    ("ConnectionError: Could not find any running Ray instance. Please specify the one to connect to", "no Ray head"),
    ("E 1234 failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:6379", "no Ray head"),
    ("AuthenticationError: InvalidAuthToken", "asks for a token"),
    ("RuntimeError: Version mismatch: The cluster was started with: Ray: 2.50.0 Python: 3.11.7", "different versions"),
    ("OSError: AF_UNIX path length cannot exceed 107 bytes: /very/long/sockets/plasma_store", "107 bytes"),
    ("AssertionError: ray_num_nodes: 0 cannot meet num_nodes 2", "fewer nodes"),
    ("need 2 nodes with 16 DEMO each, the cluster has\n  10.0.0.1: DEMO 8 (8 < 16)", "fewer nodes"),
    ("Warning: The following resource request cannot be scheduled right now: {'DEMO': 8.0}", "does not have"),
    ("1 of 2 nodes joined; missing rank 1", "did not join in time"),
    ("node 'n2' has other plugins than the driver", "same plugins"),
    ("ray.exceptions.GetTimeoutError: Get timed out", "did not answer in time"),
    ("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
     "worker's process ended"),
    ("AttributeError: Can't pickle local object 'main.<locals>.<lambda>'", "cannot"),
    ("TypeError: cannot pickle '_thread.lock' object", "cannot"),
    ("RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: lo0",
     "no address"),
    ("socket.gaierror: [Errno -2] Name or service not known", "no address"),
    ("RuntimeError: [unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete", "never came"),
    ("Watchdog caught collective operation timeout: WorkABC(SeqNum=5, OpType=ALLGATHER)", "never came"),
    ("torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
     "never came"),
    ("RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4213", "the other end"),
    ("torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB", "device's memory is full"),
    ("RuntimeError: invalid device ordinal", "count the visible devices from 0"),
    ("two lists of visible devices differ: A=0 and B=1", "two variables"),
    ("RuntimeError: Expected all tensors to be on the same device, but found at least two devices, demo:0 and demo:1!",
     "another device than the rest"),
    ("RuntimeError: Only one platform plugin can be activated, but got: ['cpu', 'demo']", "several platforms"),
    ("there is an accelerator here that no loaded plugin can use", "not installed, or failed to load"),
    ('RuntimeError: "addmm_impl_cpu_" not implemented for \'Half\'', "number format"),
    ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
     "engine's cache of keys and values"),
    ("ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV "
     "cache (12000)", "engine's cache of keys and values"),
    ("ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len", "is longer than"),
    ("RuntimeError: Error(s) in loading state_dict: size mismatch for lm_head.weight", "not those of the model"),
    ("roll_core.errors.IllegalOrder: update_weights while asleep", "its state forbids"),
    ("Fatal Python error: Segmentation fault", "compiled code crashed"),
    ("OSError: We couldn't connect to 'https://huggingface.co' to load the files", "to be downloaded"),
    ("huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/api: offline mode is enabled.",
     "to be downloaded"),
    ("huggingface_hub.errors.LocalEntryNotFoundError: outgoing traffic has been disabled", "to be downloaded"),
    ("OSError: Qwen2.5-7B is not a local folder and is not a valid model identifier listed on 'the hub'",
     "no such model"),
    ("OSError: /models/x does not appear to have a file named config.json.", "the folder is no model"),
    ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "cut short"),
    ("ValueError: The checkpoint has model type `qwen9` but Transformers does not recognize this architecture.",
     "older"),
    ("Exception: data did not match any variant of untagged enum ModelWrapper at line 757443 column 3",
     "newer tokenizers"),
    ("ValueError: Cannot use chat template functions because tokenizer.chat_template is not set", "no chat template"),
    ("huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling "
     "parallelism to avoid deadlocks...", "only a warning"),
    ("ImportError: FlashAttention2 has been toggled on, but it cannot be used: the package flash_attn seems to be not "
     "installed.", "flash_attn is asked for"),
    ("ModuleNotFoundError: No module named 'flash_attn'", "flash_attn is asked for"),
    ("_pickle.UnpicklingError: Weights only load failed.", "a checkpoint is not there"),
    ("no checkpoint at /data/models/checkpoint-150", "a checkpoint is not there"),
    ("another run is writing to /data/models", "two runs write"),
    ("pyarrow.lib.ArrowInvalid: JSON parse error: Column(/ground_truth) changed from number to string in row 10",
     "different types"),
    ("NotImplementedError: Reward function is not implemented for data_source=''", "no reward is configured"),
    ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "no JSON"),
    ("no prompt is left to train on: 5 rows, 5 too long", "fewer prompts are left"),
    ("ValueError: Generated too many. Please check if your data are too difficult. num_gen_batches=10",
     "all right or all wrong"),
    ("yaml.scanner.ScannerError: mapping values are not allowed here", "YAML file cannot be read"),
    ("omegaconf.errors.InterpolationKeyError: Interpolation key 'respones_length' not found", "${...}"),
    ("Exception: Could not deserialize ATN with version 3 (expected 4).", "do not fit"),
    ("AttributeError: type object 'PSParser' has no attribute 'FUNC_GAMMA'", "do not fit"),
    ("omegaconf 2.3.0 requires antlr4-python3-runtime==4.9.*, but you have antlr4-python3-runtime 4.13.2",
     "do not fit"),
    ("ValueError: signal only works in main thread of the main interpreter", "outside the main thread"),
    ("reward 'math_rule' fails its self-test here", "wrong verdicts"),
    ("reward 'mine' returned 1 scores for 8 samples", "another number of scores"),
    ("ValueError: Exceeds the limit (4300 digits) for integer string conversion", "4300 digits"),
    ("LookupError: Resource punkt_tab not found.", "data of nltk"),
    ("wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
     "tracker cannot reach"),
    ("A module that was compiled using NumPy 1.x cannot be run in NumPy 2.4.6", "generation of NumPy"),
    ("ImportError: /lib/ops.so: undefined symbol: _ZN3c105ErrorC2E", "built against another torch"),
    ("ImportError: libgomp.so.1: cannot allocate memory in static TLS block", "thread-local storage"),
    ("OSError: libdevice.so: cannot open shared object file: No such file or directory", "system library is missing"),
    ("TypeError: Descriptors cannot be created directly.", "older protobuf"),
    ("ERROR: pip's dependency resolver does not currently take into account all the packages", "different versions"),
    ("ModuleNotFoundError: No module named 'sglang'", "optional package"),
    ("ImportError: cannot import name 'x' from partially initialized module 'ray' (most likely due to a "
     "circular import)",
     "import each other"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "cause"), SEEN, ids=[text[:40] for text, _ in SEEN])
def test_the_first_explanation_of_an_error_is_its_own(text: str, cause: str) -> None:
    answer = explain(text, load_plugins({}, []))
    assert answer.explanations, "nothing is known"
    assert cause in answer.explanations[0].cause


def test_every_known_error_is_one_that_was_seen() -> None:
    registry = load_plugins({}, [])
    first = {explain(text, registry).explanations[0].cause for text, _ in SEEN}
    assert [known.cause for known in KNOWN_ERRORS if known.cause not in first] == []


def test_every_pattern_is_a_regular_expression_and_every_error_has_a_remedy() -> None:
    for known in KNOWN_ERRORS:
        assert known.cause.strip() and known.remedy.strip()
        assert all(re.compile(pattern) for pattern in known.patterns)


@pytest.mark.parametrize(
    "text",
    [
        "step 10: loss 0.31, 12 tokens per second",
        "no problems in run.yaml",
        "AssertionError",
        "TypeError: f() takes 1 positional argument but 2 were given",
        "the answer was killed with kindness",
        "INFO saving checkpoint-20",
    ],
)
def test_what_is_no_known_error_is_not_explained(text: str) -> None:
    assert explain(text, load_plugins({}, [])).explanations == ()
