/**
 * The cluster as a tree of domains whose leaves are nodes with their devices: what the map draws.
 *
 * It is made from what the server says of nodes and the network. Where a tile stands is `layout.ts`'s business.
 */

export interface Device {
  index: number;
  kind: string;
  task: string; // the number of the task that holds it, such as 17.3; empty: nobody
  job: string; // the number of its job, such as 17
  idleS: number; // held and hardly used for so long
  broken: string; // why it is given to no task; empty: it may be
}

export interface MapNode {
  name: string;
  path: string[]; // domains from the outermost to the innermost
  status: string;
  drained: boolean;
  note: string; // why it is drained, or what else is unusual about it
  cores: number;
  coresFree: number;
  devices: Device[];
  tasks: number; // attempts that it holds
  jobs: string[]; // numbers of their jobs, the first of them
}

export interface Domain {
  layer: string;
  name: string;
  path: string[];
  children: Domain[];
  nodes: MapNode[]; // right below it
  nodeCount: number;
  devices: number;
  free: number;
}

export interface JobInfo {
  id: string;
  number: string;
  name: string;
  user: string;
  queue: string;
  first: number; // the index of its first task
  step: number; // between the indexes of two tasks
}

export interface Cluster {
  root: Domain;
  layers: string[]; // from the outermost to the innermost, the node's own not among them
  nodes: MapNode[];
  jobs: Map<string, JobInfo>; // by number
}

export const NO_DOMAIN = 'not labelled';

/** The tree of these nodes, whose paths are as long as `layers`: domains in natural order, those without a label last. */
export function clusterOf(layers: string[], nodes: MapNode[], jobs: Map<string, JobInfo>, name = 'cluster'): Cluster {
  const root = emptyDomain('cluster', name, []);
  const sorted = [...nodes].sort((a, b) => natural(a.name, b.name));
  for (const node of sorted) {
    let at = root;
    for (const [level, layer] of layers.entries()) at = childOf(at, layer, node.path[level] || NO_DOMAIN);
    at.nodes.push(node);
  }
  sum(root);
  return { root, layers, nodes: sorted, jobs };
}

/** Whether a device would be given to a task that asks. */
export function isFree(node: MapNode, device: Device): boolean {
  return !device.task && !device.broken && isOpen(node);
}

export function isOpen(node: MapNode): boolean {
  return node.status === 'Online' && !node.drained;
}

/** The domain at a path, or the nearest one above it that is still there. */
export function domainAt(root: Domain, path: string[]): Domain {
  let at = root;
  for (const name of path) {
    const next = at.children.find((child) => child.name === name);
    if (!next) break;
    at = next;
  }
  return at;
}

export function nodesBelow(domain: Domain): MapNode[] {
  return [...domain.nodes, ...domain.children.flatMap(nodesBelow)];
}

/** Compares so that n2 comes before n10. */
export function natural(a: string, b: string): number {
  return collator.compare(a, b);
}

const collator = new Intl.Collator('en', { numeric: true });

function emptyDomain(layer: string, name: string, path: string[]): Domain {
  return { layer, name, path, children: [], nodes: [], nodeCount: 0, devices: 0, free: 0 };
}

function childOf(parent: Domain, layer: string, name: string): Domain {
  const found = parent.children.find((child) => child.name === name);
  if (found) return found;
  const made = emptyDomain(layer, name, [...parent.path, name]);
  parent.children.push(made);
  return made;
}

function sum(domain: Domain): void {
  domain.children.forEach(sum);
  domain.children.sort((a, b) => last(a) - last(b) || natural(a.name, b.name));
  domain.nodeCount = domain.nodes.length;
  for (const node of domain.nodes) {
    domain.devices += node.devices.length;
    domain.free += node.devices.filter((device) => isFree(node, device)).length;
  }
  for (const child of domain.children) {
    domain.nodeCount += child.nodeCount;
    domain.devices += child.devices;
    domain.free += child.free;
  }
}

function last(domain: Domain): number {
  return domain.name === NO_DOMAIN ? 1 : 0;
}
