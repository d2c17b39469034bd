"""Packages that do not fit each other."""

from roll_core.findings import KnownError

INSTALLATION_ERRORS: tuple[KnownError, ...] = (
    KnownError(
        (
            r"compiled using NumPy 1\.x cannot be run in",
            r"numpy\.dtype size changed",
            r"numpy\.core\.multiarray failed",
        ),
        "a package was built for another generation of NumPy than the one installed",
        "pip install --upgrade that package; or, if it has no newer release, pip install 'numpy<2'",
    ),
    KnownError(
        (
            r"undefined symbol",
            r"GLIBC(XX)?_[\d.]+' not found",
            r"DLL load failed",
            r"symbol not found in flat namespace",
        ),
        "compiled code was built against another torch, or another system library, than the one here",
        "packages with compiled parts (vllm, flash_attn, triton) in the versions that name this torch; `roll "
        "doctor` shows what is out of range",
    ),
    KnownError(
        (r"cannot allocate memory in static TLS block",),
        "a library with thread-local storage was loaded too late",
        "LD_PRELOAD=<the library of the message> before the start, or import it first",
    ),
    KnownError(
        (r"cannot open shared object file",),
        "a system library is missing, or its folder is not on the library path because a set-up script was not sourced",
        "source the toolkit's set-up script in the shell that starts the run; ldconfig -p | grep <library>; "
        "`roll doctor --platform <name>` for what the device's own software needs",
    ),
    KnownError(
        (r"descriptors cannot be created directly", r"protobuf.{0,60}(version|incompatible)"),
        "a package was generated for an older protobuf",
        "pip install 'protobuf<5', or upgrade the package that the traceback names",
    ),
    KnownError(
        (r"pip's dependency resolver", r"ResolutionImpossible", r"which is incompatible", r"conflicting dependencies"),
        "two packages need different versions of a third; pip installed one of them all the same",
        "constraints.txt of this repository: pip install -c constraints.txt ...; `roll doctor` lists what is "
        "out of range",
    ),
    KnownError(
        (r"no module named '?(vllm|sglang|deepspeed|megatron|transfer_queue|wandb|swanlab)",),
        "an optional package that the config asks for by a strategy's, tracker's or transport's name is not installed",
        "install it, or name another one in the config; `roll plugins -v` shows what can be used here",
    ),
    KnownError(
        (r"circular import", r"partially initialized module"),
        "two modules import each other, or a file of yours has the name of a package (torch.py, ray.py, types.py)",
        "rename the file that the traceback shows in your own folder",
    ),
)
