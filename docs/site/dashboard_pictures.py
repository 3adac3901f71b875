"""Takes the pictures of the dashboard that the guide and the README show: `python -m docs.site.dashboard_pictures`.

A real cluster of sixteen simulated nodes with work of several users, and Chromium. `make ui` first. The pictures are
written into docs/guides; look at each before you commit it. With names, such as `dashboard-why`, only those are taken.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

import phalanx
from docs.site.look import QUIET
from phalanx.api.schema.cluster import TokenRequest
from phalanx.manifests.read import read

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PHALANX = Path(sys.executable).with_name("phalanx")
FOLDER = Path("docs/guides")
RACKS = 4
NODE = "gpus=8,type=h100,memory=80GiB,numa=2,cpus=64,ram=512GiB,labels=rack=r"
STEPS = (
    r'i=0; while :; do i=$((i+1)); printf "\033[2m%s\033[0m \033[36mstep\033[0m %06d  \033[32mloss\033[0m 2.%04d'
    r'  \033[33mlr\033[0m 3.0e-4  tok/s 41%03d\n" "$(date +%T)" $i $((9999 - i * 7 % 9999)) $((i * 37 % 999))'
    r"; sleep 0.1; done"
)
SWEEP_FAILS = 65  # every 61st of 4,000 tasks
URGENT = """name: urgent
priority: 50
gang: true
gather:
- {layer: rack, must: true}
groups:
- tasks: 4
  gpus: 8
  command: [torchrun, train.py]
"""
# The stages of a workflow: after which others, and for how many seconds.
STAGES = {
    "fetch": ("", 1), "clean": ("fetch", 3), "tokenize": ("clean", 4), "baseline": ("fetch", 5),
    "train": ("tokenize", 9), "ablate": ("tokenize", 7), "judge": ("train, baseline", 600),
    "compare": ("ablate, baseline", 2), "report": ("judge, compare", 1),
}  # fmt: skip
# Name, address, theme, what is awaited, and a phone's width or not.
PICTURES = (
    ("dashboard-overview", "/", "light", ".tile .value", False),
    ("dashboard-jobs", "/jobs?sort=number", "light", "[aria-rowindex='2'] .status", False),
    ("dashboard-why", "/jobs/vision-huge", "light", ".why .fix button", False),
    ("dashboard-tasks", "/jobs/hyperparameters?task=%s", "light", "article ol li", False),
    ("dashboard-logs", "/jobs/llm-pretrain?tab=logs", "dark", ".line:nth-child(20)", False),
    ("dashboard-map", "/map", "dark", "main canvas", False),
    ("dashboard-what-if", "/map?plan=1", "light", "main canvas", False),
    ("dashboard-time", "/time?by=job&span=180", "light", ".gantt[data-drawn]", False),
    ("dashboard-workflow", "/workflows/nightly?stage=judge", "light", ".svelte-flow__edge", False),
    ("dashboard-node", "/nodes/n1", "dark", ".device", False),
    ("dashboard-terminal", "/terminal/llm-pretrain.0", "dark", ".xterm-helper-textarea:focus", False),
    ("dashboard-phone", "/jobs/llm-pretrain", "light", "[aria-rowindex='2'] .status", True),
)


def work(client: phalanx.Client, address: str) -> tuple[str, phalanx.Client]:
    """Jobs of three users: two gangs, sweeps, what waits and what failed. Returns a failed task's number, and the user
    whose job waits for more than any node has.
    """
    users = {
        name: phalanx.Client(address, client.create_token(TokenRequest(name=name, role="user")).token)
        for name in ("alice", "bob", "carol")
    }
    alice, bob, carol = users.values()
    nodes = [
        f"    - {{name: {name}, dependsOn: [{after}], spec: {{command: [sleep, '{seconds}']}}}}"
        for name, (after, seconds) in STAGES.items()
    ]
    head = "apiVersion: flowmesh/v1\nkind: Workflow\nmetadata: {name: nightly}\nspec:\n  graph:\n    nodes:\n"
    bob.submit_workflow(read([("flow.yaml", head + "\n".join(nodes))]).workflows[0].spec)
    alice.submit(name="llm-pretrain", command=["sh", "-c", STEPS], tasks=4, min=4, gpus=8, priority=10)
    bob.submit(name="diffusion", command=["sleep", "3000"], tasks=3, min=3, gpus=8)
    carol.submit(name="evaluate", command=["sleep", "3000"], array="1-20", gpus=1)
    sweep = "sleep $((PHALANX_ARRAY_INDEX % 9)); [ $((PHALANX_ARRAY_INDEX % 61)) != 0 ]"
    made = bob.submit(
        name="hyperparameters", command=["sh", "-c", sweep], array="1-4000", cores=2, max_retries=0
    )
    carol.submit(name="tokenize", command=["true"], array="1-40", cores=4)
    carol.submit(
        name="broken-config", command=["sh", "-c", "echo 'no such key: lr' >&2; exit 2"], max_retries=0
    )
    alice.submit(name="vision-large", command=["sleep", "3000"], gpus=8, array="1-12", time_limit="8h")
    alice.submit(name="vision-ablation", command=["sleep", "3000"], tasks=10, min=10, gpus=8)
    alice.submit(
        name="vision-huge", command=["sleep", "3000"], cwd="/home/alice", gpus=16, allow_infeasible=True
    )
    bob.submit(name="nightly-report", command=["true"], hold=True)
    for number in range(30):
        users[("alice", "bob", "carol")[number % 3]].submit(
            name=f"notebook-{number}", command=["sleep", "3000"], gpus=4
        )
    failed = f"{made.batch_id}.61"
    while client.task(failed).status != "Failed":
        time.sleep(0.2)
    return str(client.task(failed).number), alice


def plan(page: Page) -> None:
    page.get_by_label("Job file or manifest").fill(URGENT)
    page.get_by_role("button", name="Plan", exact=True).click()
    page.locator(".verdict").wait_for()


def type_commands(page: Page) -> None:
    page.keyboard.type(
        "echo $PHALANX_NODE_NAMES; echo rank $PHALANX_NODE_RANK of $PHALANX_NUM_NODES; ls --color /usr\n"
    )


def wait_for_sweep(client: phalanx.Client) -> None:
    """Until all failures of the sweep are there, which the guide counts."""
    while client.job("hyperparameters").counts.failed < SWEEP_FAILS:
        time.sleep(0.2)


DONE = {"dashboard-what-if": plan, "dashboard-terminal": type_commands}  # what is done before the picture


def take(browser: Browser, admin: phalanx.Client, alice: phalanx.Client, address: str, failed: str) -> None:
    for name, path, theme, awaited, is_phone in PICTURES:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        if name == "dashboard-tasks":
            wait_for_sweep(admin)
        size = {"width": 390, "height": 780} if is_phone else {"width": 1280, "height": 760}
        page = browser.new_page(viewport=size, color_scheme=theme, device_scale_factor=1)  # type: ignore[arg-type]
        log_in(page, alice if name == "dashboard-why" else admin, address)  # a fix is for whose job it is
        page.goto(f"{address}/ui{path.replace('%s', failed)}")
        page.locator(awaited).first.wait_for()
        if name in DONE:
            DONE[name](page)
        page.wait_for_timeout(2500)  # the fonts, and what a second request brings
        page.screenshot(path=FOLDER / f"{name}.png")
        page.close()
        print(FOLDER / f"{name}.png")


def log_in(page: Page, client: phalanx.Client, address: str) -> None:
    page.goto(client.dashboard([address]).url)
    page.get_by_role("navigation", name="Pages").wait_for()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        nodes = [word for rack in range(1, RACKS + 1) for word in ("--pretend", f"{NODE}{rack}")]
        words = [PHALANX, "up", "--detach", "--state", folder, "--port", "7599", "--nodes", "16", *nodes]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        address = "http://127.0.0.1:7599"
        client = phalanx.Client(address, (Path(folder) / "credentials").read_text().split()[0])
        try:
            failed, alice = work(client, address)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=QUIET)
                take(browser, client, alice, address, failed)
                browser.close()
        finally:
            subprocess.run([PHALANX, "down", "--state", folder], check=False, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
