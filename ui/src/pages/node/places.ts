/** The NUMA nodes of a machine with their cores and devices; devices of no NUMA node come last. */
import type { Schemas } from '../../lib/api';

type NodeView = Schemas['NodeView'];
type DeviceView = Schemas['DeviceView'];

export interface Place {
  numa: number | null;
  title: string;
  cores: number;
  coresFree: number;
  devices: DeviceView[];
}

/** Each limit, what it is called, and what is so without it. */
export const LIMITS = [
  ['cpus', 'Cores', 'not enforced'],
  ['cpu_time', 'CPU time', 'not enforced'],
  ['memory', 'Memory', 'not enforced'],
  ['processes', 'Processes', 'not enforced'],
  ['devices', 'Devices', 'not enforced'],
  ['scratch', 'Scratch space', 'no size is set'],
  ['network', 'Network', 'of the node'],
] as const;

export function placesOf(node: NodeView): Place[] {
  const places: Place[] = node.numa.map((numa) => ({
    numa: numa.id,
    title: `NUMA node ${numa.id}`,
    cores: numa.cores,
    coresFree: numa.cores_free,
    devices: node.devices.filter((device) => device.numa === numa.id),
  }));
  const known = new Set(places.map((place) => place.numa));
  const others = node.devices.filter((device) => device.numa === null || device.numa === undefined || !known.has(device.numa));
  if (others.length || !places.length) places.push({ numa: null, title: 'Of no NUMA node', cores: 0, coresFree: 0, devices: others });
  return places;
}
