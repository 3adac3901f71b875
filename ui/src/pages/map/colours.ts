/**
 * What a cell of the map stands for, and the legend: by job, user, queue, usage or health.
 *
 * Every meaning has a colour of the palette and a sign, so that nothing is said by colour alone.
 */
import { categoryColour, categoryOf, CATEGORY_COUNT, colourOf, OUT_OF_SERVICE, type Theme } from '../../lib/palette';
import { isOpen, natural, type Cluster, type Device, type MapNode } from './tree';

export const COLOUR_BY = ['job', 'user', 'queue', 'usage', 'health'] as const;
export type ColourBy = (typeof COLOUR_BY)[number];
export type Tone = 'held' | 'free' | 'closed' | 'bad' | 'warn' | 'good';

export interface Paint {
  key: string; // what a click on it filters by
  text: string; // for people
  sign: string; // one letter or mark in the cell
  fill: readonly [light: string, dark: string] | null; // null: the cell is only outlined
  tone: Tone;
}

export interface LegendEntry {
  paint: Paint;
  count: number;
}

export const IDLE_LONG_S = 3600;
const SIGNS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';

const FREE: Paint = { key: 'free', text: 'free', sign: '', fill: null, tone: 'free' };
const UNKNOWN: Paint = { key: 'unknown', text: 'held, job not listed', sign: '?', fill: ofState('Cancelled'), tone: 'held' };
const CLOSED: Paint = { key: 'closed', text: 'free, node drained', sign: '', fill: null, tone: 'closed' };
const GONE: Paint = { key: 'away', text: 'node not online', sign: '!', fill: null, tone: 'bad' };
const BROKEN: Paint = { key: 'broken', text: 'out of service', sign: '×', fill: OUT_OF_SERVICE, tone: 'bad' };
const FINE: Paint = { key: 'healthy', text: 'healthy', sign: '', fill: ofState('Online'), tone: 'good' };
const DRAINED: Paint = { key: 'drained', text: 'node drained', sign: 'd', fill: ofState('Pending'), tone: 'warn' };
const BUSY: Paint = { key: 'busy', text: 'in use', sign: '', fill: ofState('Running'), tone: 'held' };
const IDLE: Paint = { key: 'idle', text: 'held, idle', sign: 'i', fill: ofState('Pending'), tone: 'warn' };
/** Of a node without GPUs in a cluster that has some: its cell is no GPU and has the colour of no job. */
const NO_GPUS: Paint = { key: 'no-gpus', text: 'node without GPUs, cores in use', sign: '', fill: ofState('Running'), tone: 'held' };
const IDLE_LONG: Paint = { key: 'idle-long', text: 'held, idle over 1 h', sign: 'I', fill: ofState('Failed'), tone: 'warn' };

/** What each cell stands for, by node and device; kept so that drawing asks nothing twice. */
export class Colouring {
  private readonly jobs = new Map<string, Paint>();
  private readonly names: Map<string, Paint>;

  constructor(
    private readonly cluster: Cluster,
    readonly by: ColourBy,
  ) {
    this.names = by === 'user' || by === 'queue' ? namePaints(cluster, by) : new Map();
  }

  /** Of one device; without one, of a node that has none. */
  of(node: MapNode, device: Device | undefined): Paint {
    const isPlain = !device && this.cluster.root.devices > 0;
    if (this.by === 'health') {
      const paint = health(node, device);
      return isPlain ? { ...paint, text: `${paint.text}, no GPUs` } : paint;
    }
    const job = device ? device.job : (node.jobs[0] ?? '');
    if (isPlain && isOpen(node)) return job ? NO_GPUS : { ...NO_GPUS, fill: null, tone: 'free' };
    if (!job) return unheld(node, device);
    if (this.by === 'usage') return usage(device);
    if (this.by === 'job') return this.ofJob(job);
    const info = this.cluster.jobs.get(job);
    return (info && this.names.get(info[this.by])) ?? UNKNOWN;
  }

  ofJob(number: string): Paint {
    const known = this.jobs.get(number);
    if (known) return known;
    const name = this.cluster.jobs.get(number)?.name ?? '';
    const at = Number.parseInt(number, 10) || 0;
    const sign = number.length <= 3 ? number : number.slice(-2);
    const paint: Paint = { key: number, text: `${number} ${name}`.trim(), sign, fill: ofCategory(at), tone: 'held' };
    this.jobs.set(number, paint);
    return paint;
  }

  /** What the cells of these nodes stand for, the most frequent first. */
  legend(nodes: MapNode[]): LegendEntry[] {
    const counts = new Map<string, LegendEntry>();
    for (const node of nodes) {
      const devices = node.devices.length ? node.devices : [undefined];
      for (const device of devices) {
        const paint = this.of(node, device);
        const entry = counts.get(paint.key + paint.text);
        if (entry) entry.count += 1;
        else counts.set(paint.key + paint.text, { paint, count: 1 });
      }
    }
    return [...counts.values()].sort((a, b) => rank(b.paint) - rank(a.paint) || b.count - a.count);
  }
}

/** The number of the job of a task: 17 of 17.3. */
export function jobOf(task: string): string {
  return task.split('.', 1)[0] ?? '';
}

/** What a task is called within its job: 3 of 17.3; the whole for a job of one task. */
export function indexOf(task: string): string {
  const dot = task.indexOf('.');
  return dot < 0 ? '' : task.slice(dot + 1);
}

function rank(paint: Paint): number {
  return { bad: 3, warn: 2, held: 2, good: 1, closed: 1, free: 0 }[paint.tone];
}

function unheld(node: MapNode, device: Device | undefined): Paint {
  if (device?.broken) return BROKEN;
  if (node.status !== 'Online') return GONE;
  return isOpen(node) ? FREE : CLOSED;
}

function usage(device: Device | undefined): Paint {
  if (!device?.idleS) return BUSY;
  return device.idleS >= IDLE_LONG_S ? IDLE_LONG : IDLE;
}

function health(node: MapNode, device: Device | undefined): Paint {
  if (device?.broken) return BROKEN;
  if (node.status !== 'Online') return { ...GONE, key: node.status, text: `node ${node.status.toLowerCase()}` };
  return node.drained ? DRAINED : FINE;
}

/** A colour and a letter for each user or queue that has jobs, in order of the names. */
function namePaints(cluster: Cluster, by: 'user' | 'queue'): Map<string, Paint> {
  const names = new Set<string>();
  for (const job of cluster.jobs.values()) names.add(job[by]);
  const taken = new Set<string>();
  const categories = new Set<number>();
  const paints = new Map<string, Paint>();
  for (const name of [...names].sort(natural)) {
    const sign = letterOf(name, taken, paints.size);
    const category = freeCategory(categoryOf(name), categories);
    paints.set(name, { key: name, text: name || `no ${by}`, sign, fill: ofCategory(category), tone: 'held' });
  }
  return paints;
}

/** The first letter of a name that none before it has taken. */
function letterOf(name: string, taken: Set<string>, at: number): string {
  const own = [...name.toUpperCase()].filter((letter) => SIGNS.includes(letter));
  const sign = [...own, ...SIGNS].find((letter) => !taken.has(letter)) ?? SIGNS[at % SIGNS.length] ?? '?';
  taken.add(sign);
  return sign;
}

/** The category of a name, or the next one that no other name has; all are taken after twelve names. */
function freeCategory(wanted: number, taken: Set<number>): number {
  for (let step = 0; step < CATEGORY_COUNT; step++) {
    const category = (wanted + step) % CATEGORY_COUNT;
    if (taken.has(category)) continue;
    taken.add(category);
    return category;
  }
  return wanted;
}

function ofState(state: string): readonly [string, string] {
  return [colourOf(state, 'light'), colourOf(state, 'dark')];
}

function ofCategory(index: number): readonly [string, string] {
  return [categoryColour(index, 'light'), categoryColour(index, 'dark')];
}

/** Black or white, whichever is read better on a colour. */
export function inkOn(colour: string): string {
  const [r, g, b] = [1, 3, 5].map((at) => (Number.parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * (r ?? 0) + 0.7152 * (g ?? 0) + 0.0722 * (b ?? 0) > 0.28 ? '#10151c' : '#ffffff';
}

export function fillIn(paint: Paint, theme: Theme): string {
  return paint.fill?.[theme === 'light' ? 0 : 1] ?? '';
}
