// A runner for Phalanx in JavaScript. It knows nothing of Phalanx but proto/phalanx/v1/runners.proto.
//
//   npm ci --prefix examples/node
//   export KRISHIV_EXECUTOR_TASK_BEARER_TOKEN=$(cat ~/.local/state/phalanx/node-credentials)
//   flock -n runner.lock node examples/node/runner.mjs my-node 127.0.0.1:7435 [another coordinator ...]

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { openSync, closeSync } from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const proto = fileURLToPath(new URL("../../proto/phalanx/v1/runners.proto", import.meta.url));
const shape = { keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true };
const { Runners } = grpc.loadPackageDefinition(loader.loadSync(proto, shape)).phalanx.v1;
const [node, ...addresses] = process.argv.slice(2);
const token = process.env.KRISHIV_EXECUTOR_TASK_BEARER_TOKEN;
const life = randomBytes(8).toString("hex");
const now = () => performance.now() / 1000;
const textOf = (key) => `${key.job}/${key.position}/${key.number}`;
const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const TOLD_AGAIN = ["DISPOSITION_STALE_EPOCH", "DISPOSITION_STALE_LEASE"]; // a report that was not judged is kept

let epoch = 0, generation = 0, heartbeatS = 5, selfFenceS = 20;
let stream = null, isWelcome = false, helloAt = 0, leaseUntil = 0, seenAt = 0, heardAt = 0;
const briefs = new Map();
const lanes = new Map(); // the promise of the last attempt of each
const attempts = new Map(); // by key, until a coordinator has taken note of their end
const known = new Set(); // keys of what was ever started or stopped here: nothing is started twice

const held = () => [...attempts.values()].map(({ start, phase }) => ({ key: start.key, phase }));

function report(what) {
  // What happens before the welcome is told after it.
  if (isWelcome) stream.write({ reports: { epoch, generation, reports: [what] } });
}

function tell(attempt) {
  const { start: { key }, exit, phase } = attempt;
  if (exit) report({ ended: { key, exit } });
  else if (phase === "PHASE_READY") report({ ready: { key } });
}

function hear(message) {
  const what = message.message, said = message[what];
  heardAt = now();
  if (what === "rejected") {
    if (!said.retry) throw new Error(`rejected: ${said.code}: ${said.message}`);
  } else if (what === "dispositions") {
    for (const { key, disposition } of said.items)
      if (!TOLD_AGAIN.includes(disposition)) attempts.delete(textOf(key));
  } else if (said.epoch < epoch) {
    return; // of a coordinator that was replaced
  } else if (what === "welcome") {
    ({ epoch, generation, heartbeat_s: heartbeatS, self_fence_s: selfFenceS } = said);
    [isWelcome, leaseUntil] = [true, helloAt + selfFenceS];
  } else if (what === "beat_ack") {
    [leaseUntil, seenAt] = [said.sent_at + selfFenceS, said.at];
  } else if (what === "orders") {
    for (const one of said.orders) order(one.order, one[one.order]);
  }
}

function order(what, said) {
  if (what === "brief") briefs.set(`${said.job}/${said.group}`, said);
  if (!["start", "stop", "go", "pause", "resume"].includes(what)) return;
  const text = textOf(said.key), attempt = attempts.get(text);
  if ((what === "start" || what === "stop") && !known.has(text)) {
    known.add(text);
    const start = what === "start" ? said : { key: said.key, lane: `stopped ${text}`, formation: 0 };
    const made = { start, phase: "PHASE_QUEUED", stop: what === "stop" ? said.why : null, exit: null };
    made.going = new Promise((go) => (made.go = go));
    attempts.set(text, made);
    lanes.set(start.lane, run(made, lanes.get(start.lane)));
  } else if (!attempt) return;
  else if (what === "stop") halt(attempt, said.why, said.grace_s);
  else if (what === "go") attempt.go();
  else if (what !== "start") signal(attempt, what === "pause" ? "SIGSTOP" : "SIGCONT");
}

async function run(attempt, before) {
  await before; // the one before it in its lane
  const { start } = attempt;
  if (start.formation && !attempt.stop) {
    attempt.phase = "PHASE_READY";
    tell(attempt);
    await attempt.going;
  }
  const end = attempt.stop ? {} : await execute(attempt, briefs.get(`${start.key.job}/${start.group}`));
  const byCode = end.code === 0 ? "WHY_NONE" : end.code > 0 ? "WHY_EXITED" : "WHY_SIGNALLED";
  const why = attempt.stop ?? (end.code === undefined ? "WHY_REFUSED" : byCode);
  [attempt.phase, attempt.exit] = ["PHASE_ENDED", { ...end, why }];
  tell(attempt);
}

function execute(attempt, { command, time_limit_s: limitS, grace_s: graceS }) {
  const { key, index, grant } = attempt.start;
  const log = openSync(`${key.job}-${key.position}-${key.number}.log`, "w");
  const env = { PATH: process.env.PATH, PHALANX_ARRAY_INDEX: `${index}`, CUDA_VISIBLE_DEVICES: grant.devices.join() };
  const argv = ["--pdeathsig", "KILL", "--", ...command.argv]; // its tasks end with it
  const where = { cwd: command.cwd || undefined, env: { ...env, ...command.env }, detached: true };
  const made = (attempt.process = spawn("setpriv", argv, { ...where, stdio: ["ignore", log, log] }));
  closeSync(log);
  const startedAt = Date.now() / 1000;
  return new Promise((done) => {
    made.on("error", (error) => done({ message: String(error) }));
    made.on("spawn", () => {
      attempt.phase = "PHASE_RUNNING";
      report({ started: { key, at: startedAt } });
      if (limitS) attempt.timer = setTimeout(() => halt(attempt, "WHY_TIMEOUT", graceS), limitS * 1000);
    });
    made.on("exit", (code, by) => {
      clearTimeout(attempt.timer);
      done({ code: code ?? -signals[by], started_at: startedAt, ended_at: Date.now() / 1000 });
    });
  });
}

function signal({ process: made }, number) {
  if (!made?.pid || made.exitCode !== null || made.signalCode !== null) return;
  try {
    process.kill(-made.pid, number);
  } catch (error) {
    if (error.code !== "ESRCH") throw error; // it has just ended
  }
}

function halt(attempt, why, graceS) {
  attempt.stop ??= why;
  attempt.go();
  signal(attempt, graceS ? "SIGTERM" : "SIGKILL");
  signal(attempt, "SIGCONT"); // a paused task gets to see it
  if (graceS) setTimeout(() => signal(attempt, "SIGKILL"), graceS * 1000);
}

function session(address) {
  // One stream in each direction, until one side has enough.
  const metadata = new grpc.Metadata();
  metadata.set("authorization", `Bearer ${token}`);
  const client = new Runners(address, grpc.credentials.createInsecure());
  stream = client.Connect(metadata);
  [isWelcome, helloAt, seenAt, heardAt] = [false, now(), 0, now()];
  const capacity = { cores: availableParallelism(), memory_bytes: totalmem() };
  const me = { version: 3, node, incarnation: life, origin: process.cwd(), capacity, epoch, held: held() };
  stream.write({ hello: me });
  return new Promise((done) => {
    stream.on("data", hear);
    stream.on("error", () => {}); // the status is told by the end
    stream.on("status", done);
  }).finally(() => {
    isWelcome = false;
    client.close();
  });
}

async function beat() {
  for (;;) {
    await wait(Math.min(1, heartbeatS));
    if (isWelcome) stream.write({ beat: { epoch, sent_at: now(), held: held(), generation, seen_at: seenAt } });
    if (now() - heardAt > 3 + heartbeatS) stream?.cancel(); // whoever sits there is frozen
    for (const attempt of attempts.values()) {
      tell(attempt);
      if (now() > leaseUntil) halt(attempt, "WHY_FENCED", 0);
    }
  }
}

const { constants: { signals } } = await import("node:os");
beat();
for (let at = 0; ; at++) {
  await session(addresses[at % addresses.length]);
  await wait(0.2);
}
