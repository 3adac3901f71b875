/**
 * Where the stages of a workflow stand: in layers, worked out by a worker so that the page goes on meanwhile. What is too
 * large for that stands in columns by depth.
 */
import type { Shape } from './layers';
import { depths, TILE, type Graph } from './dag';

export interface Point {
  x: number;
  y: number;
}

export const LAYERED_MAX = 600; // stages; more take many seconds
const GAP = { layer: 40, beside: 18 };

export type Direction = 'RIGHT' | 'DOWN';

/** To the right, or down where the stages are shown larger that way in an area of this size. */
export function directionIn(graph: Graph, width: number, height: number): Direction {
  const at = [...depths(graph).values()];
  const layers = Math.max(0, ...at) + 1;
  const most = Math.max(1, ...Array.from({ length: layers }, (_nothing, depth) => at.filter((each) => each === depth).length));
  const scale = (across: number, down: number): number => Math.min(width / across, height / down);
  const right = scale(layers * (TILE.width + GAP.layer), most * (TILE.height + GAP.beside));
  const down = scale(most * (TILE.width + GAP.beside), layers * (TILE.height + GAP.layer));
  return down > right ? 'DOWN' : 'RIGHT';
}

/** The positions of all stages, by name. */
export async function layOut(graph: Graph, direction: Direction): Promise<Map<string, Point>> {
  if (graph.nodes.length > LAYERED_MAX) return inColumns(graph, direction);
  const middles = await middlesOf(shapeIn(graph, direction));
  return middles === null ? inColumns(graph, direction) : placed(graph, direction, middles);
}

/** What the worker has to know; layers go from left to right or from top to bottom. */
export function shapeIn(graph: Graph, direction: Direction): Shape {
  const numbers = new Map(graph.nodes.map((node, at) => [node.id, at]));
  const [across, along] = direction === 'RIGHT' ? [TILE.height, TILE.width] : [TILE.width, TILE.height];
  return {
    size: [across, along],
    gap: [GAP.beside, GAP.layer],
    count: graph.nodes.length,
    edges: graph.edges.map((edge) => [numbers.get(edge.source)!, numbers.get(edge.target)!]),
  };
}

/** Corners from middles. */
export function placed(graph: Graph, direction: Direction, middles: readonly [number, number][]): Map<string, Point> {
  return new Map(
    graph.nodes.map((node, at) => {
      const [across, along] = middles[at]!;
      const [x, y] = direction === 'RIGHT' ? [along, across] : [across, along];
      return [node.id, { x: x - TILE.width / 2, y: y - TILE.height / 2 }];
    }),
  );
}

let worker: Worker | null = null;
let asked = 0;

/** Null if it could not be done. */
function middlesOf(shape: Shape): Promise<[number, number][] | null> {
  const at = (worker ??= new Worker(new URL('./layout.worker.ts', import.meta.url), { type: 'module' }));
  const id = (asked += 1);
  return new Promise((resolve) => {
    const take = ({ data }: MessageEvent<{ id: number; points: [number, number][] | null }>): void => {
      if (data.id === id) end(data.points);
    };
    const fail = (): void => end(null);
    const end = (found: [number, number][] | null): void => {
      at.removeEventListener('message', take);
      at.removeEventListener('error', fail);
      resolve(found);
    };
    at.addEventListener('message', take);
    at.addEventListener('error', fail);
    at.postMessage({ id, shape });
  });
}

/** Columns or rows by depth; no line is straightened, but it takes no time. */
export function inColumns(graph: Graph, direction: Direction): Map<string, Point> {
  const at = depths(graph);
  const rows = new Map<number, number>();
  const found = new Map<string, Point>();
  for (const node of graph.nodes) {
    const depth = at.get(node.id) ?? 0;
    const row = rows.get(depth) ?? 0;
    rows.set(depth, row + 1);
    const [across, down] = direction === 'RIGHT' ? [depth, row] : [row, depth];
    const [x, y] = direction === 'RIGHT' ? [GAP.layer, GAP.beside] : [GAP.beside, GAP.layer];
    found.set(node.id, { x: across * (TILE.width + x), y: down * (TILE.height + y) });
  }
  return found;
}
