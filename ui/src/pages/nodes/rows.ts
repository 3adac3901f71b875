/** The rows of the list of nodes: what is free, what is held, filtered and sorted. */
import type { Schemas } from '../../lib/api';
import { sorted } from '../../components/table';

export type NodeView = Schemas['NodeView'];

export interface NodeRow {
  name: string;
  status: string;
  drained: boolean;
  why: string; // why it is drained, disabled or unusual
  place: string;
  devices: number;
  held: number;
  broken: number;
  kind: string;
  cores: number;
  coresHeld: number;
  memory: number;
  memoryHeld: number;
  tasks: number;
  lacking: number; // limits that tasks are not held to; -1: not said
  seenAt: number | null;
}

const PLACE_LABELS = ['phalanx/rack', 'network.topology.nvidia.com/accelerator', 'rack'];

export function rowOf(node: NodeView): NodeRow {
  const held = node.devices.filter((device) => device.task).length;
  return {
    name: node.name,
    status: node.status,
    drained: node.drained || Boolean(node.elastic_disabled),
    why: node.drain_reason || node.disabled_reason || node.note || '',
    place: PLACE_LABELS.map((key) => node.labels[key]).find(Boolean) ?? '',
    devices: node.devices.length,
    held,
    broken: node.devices.filter((device) => device.out_of_service).length,
    kind: [...new Set(node.devices.map((device) => device.kind))].join(', '),
    cores: node.cores,
    coresHeld: Math.max(0, node.cores - node.cores_free),
    memory: node.memory_bytes,
    memoryHeld: Math.max(0, node.memory_bytes - node.memory_free_bytes),
    tasks: node.task_count,
    lacking: node.isolation ? (node.isolation.lacking ?? []).length : -1,
    seenAt: node.last_seen_at,
  };
}

export type Show = 'all' | 'open' | 'drained' | 'away' | 'broken';
export const SHOWS: readonly (readonly [Show, string])[] = [
  ['all', 'all'],
  ['open', 'take work'],
  ['drained', 'drained'],
  ['away', 'not online'],
  ['broken', 'with devices out of service'],
];

export function chosen(rows: readonly NodeRow[], show: string, search: string, sort: string): NodeRow[] {
  const wanted = search.trim().toLowerCase();
  const found = rows.filter((row) => isShown(row, show) && (!wanted || `${row.name} ${row.place} ${row.kind} ${row.why}`.toLowerCase().includes(wanted)));
  return sorted(found, sort || 'name', valueOf);
}

function isShown(row: NodeRow, show: string): boolean {
  if (show === 'open') return row.status === 'Online' && !row.drained;
  if (show === 'drained') return row.drained;
  if (show === 'away') return row.status !== 'Online';
  return show === 'broken' ? row.broken > 0 : true;
}

function valueOf(row: NodeRow, column: string): string | number | null {
  if (column === 'devices') return row.devices - row.held;
  if (column === 'cores') return row.cores - row.coresHeld;
  if (column === 'memory') return row.memory - row.memoryHeld;
  if (column === 'status') return row.drained ? `${row.status} drained` : row.status;
  return (row as unknown as Record<string, string | number | null>)[column] ?? null;
}
