"""Commands and options of other schedulers, and what does the same here: the error for one names ours."""

from __future__ import annotations

OURS = {
    # Slurm
    "sbatch": "phalanx submit -- ./script.sh",
    "srun": "phalanx run -- COMMAND",
    "salloc": "phalanx alloc",
    "squeue": "phalanx ps",
    "scancel": "phalanx cancel ID",
    "sinfo": "phalanx nodes",
    "sacct": "phalanx ps --all, phalanx usage ID",
    "sstat": "phalanx usage ID",
    "seff": "phalanx usage ID",
    "sreport": "phalanx report",
    "scontrol": "phalanx show, hold, release, update, node drain",
    "sattach": "phalanx logs -f ID",
    "sprio": "phalanx why ID",
    # PBS, LSF, Grid Engine
    "qsub": "phalanx submit -- ./script.sh",
    "qstat": "phalanx ps",
    "qdel": "phalanx cancel ID",
    "bsub": "phalanx submit -- COMMAND",
    "bjobs": "phalanx ps",
    "bkill": "phalanx cancel ID",
    # HyperQueue
    "hq": "the command without hq: phalanx submit, phalanx ps, phalanx nodes",
    "server": "phalanx up, phalanx status",
    "worker": "phalanx nodes, phalanx runner to add one",
    # kubectl, docker, Ray, shells
    "kill": "phalanx cancel ID",
    "rm": "phalanx cancel ID",
    "delete": "phalanx cancel ID",
    "stop": "phalanx cancel ID, or phalanx down for the whole cluster",
    "ls": "phalanx ps",
    "list": "phalanx ps",
    "get": "phalanx ps, phalanx nodes",
    "jobs": "phalanx ps",
    "describe": "phalanx show ID",
    "inspect": "phalanx show ID",
    "info": "phalanx show ID, phalanx status",
    "log": "phalanx logs ID",
    "tail": "phalanx logs -f ID",
    "cat": "phalanx logs ID",
    "htop": "phalanx top",
    "ssh": "phalanx attach ID",
    "create": "phalanx submit -- COMMAND, phalanx apply -f FILE",
    "drain": "phalanx node drain NAME",
    "cordon": "phalanx node drain NAME",
    "uncordon": "phalanx node resume NAME",
    "requeue": "phalanx evict ID",
    "start": "phalanx up",
    "serve": "phalanx up, phalanx coordinator",
    "reject": "phalanx deny ID --reason TEXT",
    "undrain": "phalanx node resume NAME",
    "help": "phalanx --help, phalanx COMMAND --help",
}

# Options of sbatch, srun and salloc, for the commands that take a job.
TAKES_A_JOB = frozenset({"submit", "run", "alloc", "plan"})
OUR_LOGS = "phalanx logs ID, which has the output; --split-output keeps two"
OUR_OPTIONS = {
    **dict.fromkeys(("-p", "--partition"), "-q QUEUE, or -l LABEL=VALUE for nodes of a kind"),
    **dict.fromkeys(("-A", "--account", "--qos"), "-q QUEUE"),
    **dict.fromkeys(("-d", "--dependency"), "--after JOB[:any]"),
    **dict.fromkeys(("--ntasks", "-N"), "--tasks N for tasks that start together, --array 1-N for others"),
    **dict.fromkeys(("--gres", "-G", "--gpus-per-task", "--gpus-per-node"), "--gpus N, --gpu-type TYPE"),
    **dict.fromkeys(("--mem", "--mem-per-cpu", "--mem-per-gpu"), "-m SIZE per task, such as -m 16GiB"),
    "--cpus-per-task": "-c N",
    "--time": "--time-limit TIME, such as 1h30m",
    **dict.fromkeys(("-J", "--job-name"), "-n NAME"),
    **dict.fromkeys(("-w", "--nodelist"), "--nodes NODE,…"),
    "-x": "--exclude NODE,…",
    **dict.fromkeys(("-C", "--constraint"), "-l LABEL=VALUE"),
    **dict.fromkeys(("-D", "--chdir"), "--cwd FOLDER"),
    "--wrap": "--shell -- 'COMMAND'",
    "--requeue": "--retries N",
    # HyperQueue
    "--cpus": "-c N",
    "--resource": "-c N, -m SIZE, --gpus N",
    "--crash-limit": "--retries N for each task",
    "--max-fails": "nothing: a failed task does not stop the others of an array; phalanx cancel ID does",
    "--progress": "--wait",
    **dict.fromkeys(("--stdout", "--stderr", "--log", "--error"), OUR_LOGS),
    "--time-request": "nothing: no node ends by itself, so how long a task may take is not asked for",
    "--pin": "-c N: which cores a task runs on is up to its node",
    "--stream": "phalanx logs ID, which has the output of all tasks; phalanx cp for files",
    "--nice": "--priority N: a higher one goes first, 0 is the usual one",
    **dict.fromkeys(("--mail-type", "--mail-user"), "phalanx wait ID && COMMAND: no mail is sent"),
    **dict.fromkeys(
        ("--interactive", "--pty", "--tty", "-it", "-ti"),
        "phalanx alloc for a shell, phalanx run -i for a command that reads standard input",
    ),
    "--directory": "--cwd FOLDER",
}
_A_FILE = "phalanx apply -f FILE, or phalanx workflow submit -f FILE"
OF_COMMANDS: dict[str, dict[str, str]] = {
    "submit": dict.fromkeys(("-f", "--file"), _A_FILE)
    | dict.fromkeys(("--detach", "--background"), "`phalanx submit` without it: it returns at once"),
    "run": dict.fromkeys(("-f", "--file"), _A_FILE)
    | dict.fromkeys(("--detach", "--background"), "phalanx submit, which returns at once")
    | {"-d": "phalanx submit to return at once, --after JOB to start after another one"},
    "ps": {
        "--me": "--mine, or -m",
        **dict.fromkeys(("-t", "--state", "--states"), "--status STATUS, or -s STATUS; repeatable"),
        **dict.fromkeys(("-j", "--job", "--jobs"), "phalanx show ID, or --tasks ID for its tasks"),
        **dict.fromkeys(("-A", "--account", "-p", "--partition"), "-q QUEUE"),
        **dict.fromkeys(("--nodes", "--nodelist"), "--node NAME"),
        "--csv": "-o csv",
        "--format": "--columns A,B, or -o json",
    },
    "results": {"--failed": "--status failed"},
    "logs": {"--failed": "phalanx results ID --status failed, which lists them, and phalanx logs ID.INDEX"},
    "apply": {"--dry-run": "phalanx plan -f FILE, which starts nothing"},
    "hold": {"--all": "`phalanx ps -o name | xargs phalanx hold`"},
    "wait": {"--all": "`phalanx ps -m -o name | xargs phalanx wait`"},
    "token create": dict.fromkeys(("-u", "--user"), "--name NAME: the user that the token is of"),
}
# What `update` cannot change: it is part of the request that a job was placed by.
BY_RESUBMIT = {
    **dict.fromkeys(("-m", "--memory"), "memory=16GiB"),
    **dict.fromkeys(("-c", "--cores"), "cores=8"),
    "--gpus": "gpus=2",
    "--gpu-type": "gpu_type=h100",
    "--retries": "max_retries=5",
    "--name": "name=NAME",
}


def our_option(path: str, option: str) -> str:
    """What to use instead of an option that a command, with its nouns, does not have; empty if nothing is known."""
    if option in OF_COMMANDS.get(path, {}):
        return _use(OF_COMMANDS[path][option])
    command = path.rpartition(" ")[2]
    option = "--interactive" if option in {"-it", "-ti"} else option
    if command in TAKES_A_JOB and option in OUR_OPTIONS:
        return _use(OUR_OPTIONS[option])
    if command == "update" and option in BY_RESUBMIT:
        return by_resubmit(option, "ID", "")
    return ""


def by_resubmit(option: str, id: str, value: str) -> str:
    """How a job is submitted once more with what `update` cannot change, and what becomes of the one that waits."""
    key, _, example = BY_RESUBMIT[option].partition("=")
    return (
        f"submit it once more with it: phalanx resubmit {id} --set {key}={value or example}; {id} itself stays as it"
        f" is: phalanx cancel {id} ends it"
    )


def _use(ours: str) -> str:
    return f"there is {ours}" if ours.startswith("nothing: ") else f"use {ours}"
