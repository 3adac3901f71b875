/** Asks the coordinator for what the map shows, and makes the tree of it. */
import { get, type Schemas } from '../../lib/api';
import { jobOf } from './colours';
import { clusterOf, type Cluster, type JobInfo, type MapNode } from './tree';

const PAGE = 1000;
const JOBS_MAX = 10_000; // of each status

/** The cluster as it is now. Jobs are asked for only if users or queues are to be told. */
export async function loadCluster(signal: AbortSignal): Promise<Cluster> {
  const [topology, nodes, jobs] = await Promise.all([
    get('/v1/topology', { signal }),
    get('/v1/nodes', { signal }),
    liveJobs(signal),
  ]);
  return madeOf(topology, nodes, jobs);
}

export function madeOf(topology: Schemas['TopologyView'], nodes: Schemas['NodeView'][], jobs: Schemas['JobView'][]): Cluster {
  const known = new Map<string, JobInfo>();
  for (const job of jobs) {
    const number = String(job.number ?? job.id);
    known.set(number, { id: job.id, number, name: job.name, user: job.user, queue: job.queue });
  }
  const paths = new Map(topology.nodes.map((place) => [place.name, place.domain]));
  const layers = layersOf(topology);
  return clusterOf(layers, nodes.map((node) => nodeOf(node, paths.get(node.name) ?? [])), known, topology.cluster_layer);
}

/** The layers that the nodes' paths have, which are those that some node has a label for. */
function layersOf(topology: Schemas['TopologyView']): string[] {
  const found: string[] = [];
  for (const domain of topology.domains) if (domain.domain.length) found[domain.domain.length - 1] = domain.layer;
  return found;
}

function nodeOf(node: Schemas['NodeView'], path: string[]): MapNode {
  return {
    name: node.name,
    path,
    status: node.status,
    drained: node.drained || Boolean(node.elastic_disabled),
    drainReason: node.drain_reason || node.disabled_reason || '',
    cores: node.cores,
    coresFree: node.cores_free,
    tasks: node.numbers ?? [],
    devices: node.devices.map((device) => {
      const task = device.number || device.task || '';
      return {
        index: device.index,
        kind: device.kind,
        memoryBytes: device.memory_bytes,
        numa: device.numa ?? null,
        task,
        job: jobOf(task),
        idleS: device.idle_s ?? 0,
        broken: device.out_of_service ?? '',
      };
    }),
  };
}

async function liveJobs(signal: AbortSignal): Promise<Schemas['JobView'][]> {
  const found = await Promise.all((['Running', 'Assigned'] as const).map((status) => jobsIn(status, signal)));
  return found.flat();
}

async function jobsIn(status: 'Running' | 'Assigned', signal: AbortSignal): Promise<Schemas['JobView'][]> {
  const found: Schemas['JobView'][] = [];
  let cursor: string | undefined;
  do {
    const page = await get('/v1/jobs', { query: { status, limit: PAGE, cursor }, signal });
    found.push(...page.items);
    cursor = page.next_cursor ?? undefined;
  } while (cursor && found.length < JOBS_MAX);
  return found;
}

/** The ranks of a gang's members, by the numbers of their tasks; empty for a job that is no gang. */
export async function ranksOf(job: string, signal: AbortSignal): Promise<Map<string, string>> {
  const page = await get('/v1/jobs/{id}/tasks', { path: { id: job }, query: { limit: PAGE }, signal });
  const found = new Map<string, string>();
  for (const task of page.items) if (task.rank !== null && task.rank !== undefined && task.number) found.set(task.number, String(task.rank));
  return found;
}
