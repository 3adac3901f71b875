/**
 * Where the tiles of the map stand: nested boxes in which every device has the same size.
 *
 * The size of a device and the number of boxes beside each other are chosen so that devices are as large as fits. The
 * choice is made on the largest domain of each layer, so that it costs the same for ten nodes and for ten thousand.
 */

import type { Domain, MapNode } from './tree';

export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface DomainBox extends Box {
  domain: Domain;
  depth: number;
  heading: number; // its height; 0: the box of all has none
}

export interface NodeBox extends Box {
  node: MapNode;
  label: number; // the height of its name; 0: there is no room for one
}

export interface Layout {
  width: number;
  height: number;
  cell: number; // the side of a device
  columns: number; // devices beside each other in a node
  domains: DomainBox[]; // a domain before those inside it
  nodes: NodeBox[];
}

export interface Place {
  node: number; // index in `Layout.nodes`
  device: number; // index among the node's cells
}

export const CELL_MAX = 44;
export const CELL_MIN = 4;
const LABEL_FROM = 11; // a node's name is shown where devices are at least so large
const READABLE = 8; // what is too much for the area is at least so large, and scrolls
const GAP = 1;
const NODE_PAD = 2;
const NODE_GAP = 3;
const DOMAIN_GAP = 6;
const DOMAIN_PAD = 6;
const LABEL = 13;
const HEADING = 18;
const SMALL_HEADING = 14;
const OPTIONS = 10;

/** The layout of a domain in an area; it may be higher than the area if there is too much for it. */
export function layOut(root: Domain, width: number, height: number): Layout {
  const counts = countsOf(root);
  const devices = Math.max(1, maxDevices(root));
  const chosen = choose(counts, devices, Math.max(80, width), Math.max(80, height));
  const made: Layout = { width: 0, height: 0, cell: chosen.cell, columns: deviceColumns(devices), domains: [], nodes: [] };
  const size = placeDomain(made, root, 0, 0, 0, { ...chosen, devices, width: Math.max(80, width) });
  made.width = Math.max(size.w, 0);
  made.height = Math.max(size.h, 0);
  return made;
}

/** Devices beside each other, the same for all nodes so that they line up. */
export function deviceColumns(devices: number): number {
  if (devices <= 3) return Math.max(1, devices);
  if (devices === 4) return 2;
  if (devices <= 8) return 4;
  return devices <= 16 ? 8 : Math.ceil(Math.sqrt(devices * 2));
}

/** How many cells a node shows: one for each device; one for its cores if it has none. */
export function cellsOf(node: MapNode): number {
  return Math.max(1, node.devices.length);
}

export function cellBox(layout: Layout, box: NodeBox, at: number): Box {
  const step = layout.cell + GAP;
  return {
    x: box.x + NODE_PAD + (at % layout.columns) * step,
    y: box.y + box.label + NODE_PAD + Math.floor(at / layout.columns) * step,
    w: layout.cell,
    h: layout.cell,
  };
}

/** What stands at a point: a device, a node, or the heading of a domain. */
export function hit(layout: Layout, x: number, y: number): { place?: Place; domain?: Domain } {
  const node = layout.nodes.findIndex((box) => inside(box, x, y));
  const box = layout.nodes[node];
  if (box) {
    const step = layout.cell + GAP;
    const column = Math.floor((x - box.x - NODE_PAD) / step);
    const row = Math.floor((y - box.y - box.label - NODE_PAD) / step);
    const at = row * layout.columns + column;
    const isCell = column >= 0 && column < layout.columns && row >= 0 && at < cellsOf(box.node);
    return { place: { node, device: isCell ? at : -1 } };
  }
  const heading = layout.domains.findLast((each) => each.heading && inside({ ...each, h: each.heading }, x, y));
  return heading ? { domain: heading.domain } : {};
}

/** Where an arrow key leads: within the node first, then to the nearest node in that direction. */
export function moved(layout: Layout, from: Place, dx: number, dy: number): Place {
  const box = layout.nodes[from.node];
  if (!box) return { node: 0, device: 0 };
  const inNode = withinNode(layout, box, from.device, dx, dy);
  if (inNode !== null) return { node: from.node, device: inNode };
  const here = cellBox(layout, box, Math.max(0, from.device));
  const next = nearest(layout, from.node, here, dx, dy);
  return next === null ? from : { node: next, device: nearestCell(layout, next, here) };
}

interface Chosen {
  cell: number;
  columns: number[]; // of boxes, by depth
  label: number;
}

interface Placing extends Chosen {
  devices: number;
  width: number;
}

function maxDevices(domain: Domain): number {
  const own = domain.nodes.reduce((most, node) => Math.max(most, node.devices.length), 0);
  return domain.children.reduce((most, child) => Math.max(most, maxDevices(child)), own);
}

/** The most boxes that stand in one domain, by depth. */
function countsOf(root: Domain): number[] {
  const counts: number[] = [];
  const visit = (domain: Domain, depth: number) => {
    counts[depth] = Math.max(counts[depth] ?? 0, domain.children.length + domain.nodes.length);
    domain.children.forEach((child) => visit(child, depth + 1));
  };
  visit(root, 0);
  return counts;
}

function choose(counts: number[], devices: number, width: number, height: number): Chosen {
  for (let cell = CELL_MAX; cell >= CELL_MIN; cell--) {
    const found = best(counts, devices, cell, width, height);
    if (found) return found;
  }
  const fallback = best(counts, devices, READABLE, width, Infinity) ?? best(counts, devices, CELL_MIN, width, Infinity);
  return fallback ?? { cell: CELL_MIN, columns: counts.map(() => 1), label: 0 };
}

/** The columns with which this size fits, in the shape that is most like the area's; null: it does not fit. */
function best(counts: number[], devices: number, cell: number, width: number, height: number): Chosen | null {
  const label = cell >= LABEL_FROM ? LABEL : 0;
  const node = nodeSize(cell, label, devices, deviceColumns(devices));
  let found: { columns: number[]; score: number } | null = null;
  const visit = (depth: number, w: number, h: number, columns: number[]) => {
    const inner = depth === counts.length - 1;
    const gap = inner ? NODE_GAP : DOMAIN_GAP;
    for (const column of optionsOf(counts[depth] ?? 1)) {
      const rows = Math.ceil((counts[depth] ?? 1) / column);
      const pad = depth ? 2 * DOMAIN_PAD : 0;
      const wide = column * w + (column - 1) * gap + pad;
      const high = rows * h + (rows - 1) * gap + (depth ? DOMAIN_PAD + headingOf(depth) : 0);
      if (wide > width || high > height) continue;
      const chosen = [column, ...columns];
      if (depth > 0) visit(depth - 1, wide, high, chosen);
      else {
        const score = height === Infinity ? -high : -Math.abs(Math.log(wide / high / (width / height)));
        if (!found || score > found.score) found = { columns: chosen, score };
      }
    }
  };
  visit(counts.length - 1, node.w, node.h, []);
  const kept = found as { columns: number[]; score: number } | null;
  return kept && { cell, columns: kept.columns, label };
}

/** Numbers of columns that give different numbers of rows, and not all of them. */
function optionsOf(count: number): number[] {
  const every = new Set<number>();
  for (let rows = 1; rows <= count && every.size < 4 * OPTIONS; rows++) every.add(Math.ceil(count / rows));
  const sorted = [...every];
  if (sorted.length <= OPTIONS) return sorted;
  const step = (sorted.length - 1) / (OPTIONS - 1);
  return Array.from({ length: OPTIONS }, (_, at) => sorted[Math.round(at * step)] ?? 1);
}

function nodeSize(cell: number, label: number, devices: number, columns: number): { w: number; h: number } {
  const rows = Math.ceil(Math.max(1, devices) / columns);
  return {
    w: columns * (cell + GAP) - GAP + 2 * NODE_PAD,
    h: rows * (cell + GAP) - GAP + 2 * NODE_PAD + label,
  };
}

function headingOf(depth: number): number {
  return depth <= 1 ? HEADING : SMALL_HEADING;
}

/** Place a domain and all inside it; gives its size. */
function placeDomain(made: Layout, domain: Domain, depth: number, x: number, y: number, how: Placing): { w: number; h: number } {
  const heading = depth ? headingOf(depth) : 0;
  const pad = depth ? DOMAIN_PAD : 0;
  const box: DomainBox = { domain, depth, heading, x, y, w: 0, h: 0 };
  made.domains.push(box);
  const shelf = new Shelf(x + pad, y + heading, how.columns[depth] ?? 1, how.width - x - pad);
  const node = nodeSize(how.cell, how.label, how.devices, made.columns);
  for (const child of domain.children) {
    const mark = { domains: made.domains.length, nodes: made.nodes.length };
    const size = placeDomain(made, child, depth + 1, 0, 0, how);
    shift(made, mark, shelf.take(size.w, size.h, DOMAIN_GAP));
  }
  for (const each of domain.nodes) {
    const at = shelf.take(node.w, node.h, NODE_GAP);
    made.nodes.push({ node: each, label: how.label, ...at, ...node });
  }
  box.w = Math.max(shelf.right - x + pad, depth ? 60 : 0);
  box.h = shelf.bottom - y + pad;
  return { w: box.w, h: box.h };
}

function shift(made: Layout, from: { domains: number; nodes: number }, by: { x: number; y: number }): void {
  for (const box of [...made.domains.slice(from.domains), ...made.nodes.slice(from.nodes)]) {
    box.x += by.x;
    box.y += by.y;
  }
}

/** Boxes in rows of at most so many, and no wider than there is room. */
class Shelf {
  right: number;
  bottom: number;
  private count = 0;
  private atX: number;
  private atY: number;

  constructor(
    private readonly x: number,
    y: number,
    private readonly columns: number,
    private readonly width: number,
  ) {
    this.atX = x;
    this.atY = y;
    this.right = x;
    this.bottom = y;
  }

  take(w: number, h: number, gap: number): { x: number; y: number } {
    if (this.count && (this.count % this.columns === 0 || this.atX + w > this.x + this.width)) {
      this.atX = this.x;
      this.atY = this.bottom + gap;
      this.count = 0;
    }
    const at = { x: this.atX, y: this.atY };
    this.count += 1;
    this.atX += w + gap;
    this.right = Math.max(this.right, at.x + w);
    this.bottom = Math.max(this.bottom, at.y + h);
    return at;
  }
}

function inside(box: Box, x: number, y: number): boolean {
  return x >= box.x && x < box.x + box.w && y >= box.y && y < box.y + box.h;
}

function withinNode(layout: Layout, box: NodeBox, device: number, dx: number, dy: number): number | null {
  const cells = cellsOf(box.node);
  const at = Math.max(0, device);
  const column = (at % layout.columns) + dx;
  const next = at + dx + dy * layout.columns;
  return column >= 0 && column < layout.columns && next >= 0 && next < cells ? next : null;
}

function nearest(layout: Layout, from: number, here: Box, dx: number, dy: number): number | null {
  const own = layout.nodes[from];
  if (!own) return null;
  let found: number | null = null;
  let least = Infinity;
  layout.nodes.forEach((box, at) => {
    if (at === from) return;
    const along = dx ? (dx > 0 ? box.x - own.x - own.w : own.x - box.x - box.w) : dy > 0 ? box.y - own.y - own.h : own.y - box.y - box.h;
    if (along < 0) return;
    const across = dx ? Math.abs(box.y - own.y) : Math.abs(middle(box) - (here.x + here.w / 2));
    const distance = along + 4 * across;
    if (distance < least) [found, least] = [at, distance];
  });
  return found;
}

function middle(box: Box): number {
  return box.x + box.w / 2;
}

function nearestCell(layout: Layout, node: number, here: Box): number {
  const box = layout.nodes[node];
  if (!box) return 0;
  let found = 0;
  let least = Infinity;
  for (let at = 0; at < cellsOf(box.node); at++) {
    const cell = cellBox(layout, box, at);
    const distance = Math.hypot(cell.x - here.x, cell.y - here.y);
    if (distance < least) [found, least] = [at, distance];
  }
  return found;
}
