/** What is under the pointer, in words: node, device, who holds it, and what a plan would do there. */
import { duration, plural } from '../../lib/format';
import { short } from '../../lib/text';
import { jobOf, type Colouring, type Paint } from './colours';
import type { Layout, Place } from './layout';
import type { PlanOverlay } from './overlay';
import { isOpen, type Cluster, type Device, type MapNode } from './tree';

export interface Pointed {
  node: string;
  job: string; // the number of the job that holds it; empty: nobody
  paint: Paint;
  title: string;
  lines: string[];
}

const NAME_MAX = 80;

export function describe(cluster: Cluster, layout: Layout, colouring: Colouring, plan: PlanOverlay | null, ranks: ReadonlyMap<string, string>, place: Place): Pointed {
  const node = layout.nodes[place.node]!.node;
  const device = node.devices[place.device];
  const job = device ? device.job : place.device >= 0 && !node.devices.length ? (node.jobs[0] ?? '') : '';
  const rank = device ? ranks.get(device.task) : undefined;
  const mark = plan?.marks.get(node.name)?.get(device ? device.index : -1);
  return {
    node: node.name,
    job,
    paint: colouring.of(node, device),
    title: device ? `${short(node.name, NAME_MAX)}  GPU ${device.index}` : short(node.name, NAME_MAX),
    lines: [...(device ? ofDevice(cluster, device) : ofNode(cluster, node)), ...(rank === undefined ? [] : [`rank ${rank}`]), ...stateOf(node, device), ...(mark ? [short(mark.text, 200)] : [])],
  };
}

function ofDevice(cluster: Cluster, device: Device): string[] {
  return [...(device.kind ? [short(device.kind, NAME_MAX)] : []), ...holder(cluster, device.task, device.idleS)];
}

function holder(cluster: Cluster, task: string, idleS: number): string[] {
  if (!task) return ['free'];
  const job = cluster.jobs.get(jobOf(task));
  const lines = [`held by ${task}${job?.name ? ` ${short(job.name, NAME_MAX)}` : ''}`];
  if (job) lines.push(`${short(job.user, NAME_MAX) || 'no user'}, queue ${short(job.queue, NAME_MAX)}`);
  if (idleS) lines.push(`hardly used for ${duration(idleS)}`);
  return lines;
}

function ofNode(cluster: Cluster, node: MapNode): string[] {
  const lines = [`${node.cores - node.coresFree} of ${node.cores} cores held`];
  const names = node.jobs.slice(0, 3).map((number) => `${number} ${short(cluster.jobs.get(number)?.name ?? '', NAME_MAX)}`.trim());
  if (names.length) lines.push(`${plural(node.tasks, 'task')} of ${names.join(', ')}${node.jobs.length > 3 ? ` and ${node.jobs.length - 3} more jobs` : ''}`);
  return lines;
}

function stateOf(node: MapNode, device: Device | undefined): string[] {
  const lines: string[] = [];
  if (device?.broken) lines.push(device.broken);
  if (node.status !== 'Online') lines.push(`node ${node.status.toLowerCase()}`);
  else if (!isOpen(node)) lines.push(`node drained${node.note ? `: ${short(node.note, 200)}` : ''}`);
  else if (node.note) lines.push(short(node.note, 200));
  return lines;
}
