/**
 * Where the stages of a workflow stand: layers by ELK, in a worker so that the page goes on meanwhile. What is too large
 * for it stands in columns by depth.
 */
import type { ELK } from 'elkjs/lib/elk-api';
import { depths, TILE, type Graph } from './dag';

export interface Point {
  x: number;
  y: number;
}

export const ELK_MAX = 600; // stages; ELK takes seconds for more
const GAP = { layer: 40, beside: 18 };

export type Direction = 'RIGHT' | 'DOWN';

let elk: Promise<ELK> | null = null;

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
  if (graph.nodes.length > ELK_MAX) return inColumns(graph, direction);
  try {
    const made = await (await started()).layout({
      id: 'root',
      layoutOptions: {
        'elk.algorithm': 'layered',
        'elk.direction': direction,
        'elk.layered.spacing.nodeNodeBetweenLayers': String(GAP.layer),
        'elk.spacing.nodeNode': String(GAP.beside),
        'elk.layered.considerModelOrder.strategy': 'NODES_AND_EDGES',
        'elk.layered.nodePlacement.strategy': 'NETWORK_SIMPLEX',
      },
      children: graph.nodes.map((_, at) => ({ id: String(at), ...TILE })),
      edges: edgesOf(graph),
    });
    return new Map((made.children ?? []).map((child) => [graph.nodes[Number(child.id)]!.id, { x: child.x ?? 0, y: child.y ?? 0 }]));
  } catch {
    return inColumns(graph, direction);
  }
}

function started(): Promise<ELK> {
  elk ??= Promise.all([import('elkjs/lib/elk-api'), import('elkjs/lib/elk-worker.min.js?url')]).then(
    ([api, worker]) => new api.default({ workerFactory: () => new Worker(worker.default) }),
  );
  return elk;
}

function edgesOf(graph: Graph): { id: string; sources: string[]; targets: string[] }[] {
  const numbers = new Map(graph.nodes.map((node, at) => [node.id, String(at)]));
  return graph.edges.map((edge, at) => ({ id: `e${at}`, sources: [numbers.get(edge.source)!], targets: [numbers.get(edge.target)!] }));
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
