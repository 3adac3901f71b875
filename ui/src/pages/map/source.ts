/** What the coordinator tells of nodes and their holders, made into the tree of the map; changes are put into it. */
import { get, type Schemas } from '../../lib/api';
import type { Changes } from '../../lib/events';

import { clusterOf, type Cluster, type Device, type JobInfo, type MapNode } from './tree';

export type MapView = Schemas['MapView'];
type Holder = Schemas['MapHolder'];

/** The cluster of an answer. */
export function madeOf(view: MapView): Cluster {
  const holders = new Map(view.holders.map((holder) => [holder.number, holder]));
  const jobs = new Map<string, JobInfo>();
  for (const holder of view.holders) {
    const number = String(holder.number);
    jobs.set(number, { id: holder.id, number, name: holder.name ?? '', user: holder.user, queue: holder.queue ?? '', first: holder.first ?? 0, step: holder.step ?? 1 });
  }
  return clusterOf(view.layers, view.nodes.map((node) => nodeOf(node, holders)), jobs);
}

/** The same with what has changed since. Nodes and holders are whole: they replace what was known. */
export function changed(view: MapView, changes: Changes): MapView {
  if (!changes.nodes?.length && !changes.removed?.length && !changes.holders?.length) return view;
  const nodes = new Map(view.nodes.map((node) => [node.name, node]));
  for (const node of changes.nodes ?? []) nodes.set(node.name, node);
  for (const name of changes.removed ?? []) nodes.delete(name);
  const holders = new Map(view.holders.map((holder) => [holder.number, holder]));
  for (const holder of changes.holders ?? []) holders.set(holder.number, holder);
  return { ...view, at: changes.at, revision: changes.revision, nodes: [...nodes.values()], holders: stillHolding([...nodes.values()], holders) };
}

/** An answer with those changes that are newer than it. */
export function withLater(view: MapView, changes: readonly Changes[]): MapView {
  return changes.filter((each) => each.revision > view.revision).reduce(changed, view);
}

/** Holders that still hold something, so that a page that stays open for days does not collect all others. */
function stillHolding(nodes: Schemas['MapNode'][], holders: Map<number, Holder>): Holder[] {
  const numbers = new Set(nodes.flatMap((node) => [...(node.held ?? []), ...(node.jobs ?? [])]));
  return [...holders.values()].filter((holder) => numbers.has(holder.number));
}

function nodeOf(node: Schemas['MapNode'], holders: Map<number, Holder>): MapNode {
  const devices: Device[] = [];
  const broken = new Set(node.failed ?? []);
  for (let at = 0; at < (node.devices ?? 0); at++) {
    const index = node.index?.length ? node.index[at]! : at;
    const number = node.held?.[at] ?? 0;
    const task = number ? taskOf(number, node.task?.[at] ?? 0, holders.get(number)) : '';
    devices.push({ index, kind: node.kind ?? '', task, job: number ? String(number) : '', idleS: node.idle_s?.[at] ?? 0, broken: broken.has(index) ? 'out of service' : '' });
  }
  return {
    name: node.name,
    path: node.path ?? [],
    status: node.status ?? 'Online',
    drained: node.drained ?? false,
    note: node.note ?? '',
    cores: node.cores ?? 0,
    coresFree: node.cores_free ?? 0,
    tasks: node.tasks ?? 0,
    jobs: (node.jobs ?? []).map(String),
    devices,
  };
}

/** What people call a task: 17.3, or 17 where the job has only one. */
function taskOf(number: number, position: number, holder: Holder | undefined): string {
  if (holder && (holder.tasks ?? 1) < 2) return String(number);
  return `${number}.${(holder?.first ?? 0) + position * (holder?.step ?? 1)}`;
}

/** The ranks of a gang's members, by the numbers of their tasks; empty for a job that is no gang. */
export async function ranksOf(job: JobInfo, signal: AbortSignal): Promise<Map<string, string>> {
  const states = await get('/v1/jobs/{id}/states', { path: { id: job.id }, signal });
  const found = new Map<string, string>();
  states.ranks.forEach((rank, position) => rank >= 0 && found.set(`${job.number}.${job.first + position * job.step}`, String(rank)));
  return found;
}

