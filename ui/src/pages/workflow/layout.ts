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
const GAP = { x: 40, y: 18 };

let elk: Promise<ELK> | null = null;

/** The positions of all stages, by name. */
export async function layOut(graph: Graph): Promise<Map<string, Point>> {
  if (graph.nodes.length > ELK_MAX) return inColumns(graph);
  try {
    const made = await (await started()).layout({
      id: 'root',
      layoutOptions: {
        'elk.algorithm': 'layered',
        'elk.direction': 'RIGHT',
        'elk.layered.spacing.nodeNodeBetweenLayers': String(GAP.x),
        'elk.spacing.nodeNode': String(GAP.y),
        'elk.layered.considerModelOrder.strategy': 'NODES_AND_EDGES',
        'elk.layered.nodePlacement.strategy': 'NETWORK_SIMPLEX',
      },
      children: graph.nodes.map((_, at) => ({ id: String(at), ...TILE })),
      edges: edgesOf(graph),
    });
    return new Map((made.children ?? []).map((child) => [graph.nodes[Number(child.id)]!.id, { x: child.x ?? 0, y: child.y ?? 0 }]));
  } catch {
    return inColumns(graph);
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

/** Columns by depth; no line is straightened, but it takes no time. */
export function inColumns(graph: Graph): Map<string, Point> {
  const at = depths(graph);
  const rows = new Map<number, number>();
  const found = new Map<string, Point>();
  for (const node of graph.nodes) {
    const depth = at.get(node.id) ?? 0;
    const row = rows.get(depth) ?? 0;
    rows.set(depth, row + 1);
    found.set(node.id, { x: depth * (TILE.width + GAP.x), y: row * (TILE.height + GAP.y) });
  }
  return found;
}
