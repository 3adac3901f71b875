/**
 * The layers of a graph by d3-dag: which stage stands in which layer, in which order, and where. It takes up to some seconds
 * for hundreds of stages, so a worker calls it (`layout.worker.ts`).
 */
import { coordGreedy, coordSimplex, decrossTwoLayer, graph, layeringSimplex, sugiyama, type MutGraphNode } from 'd3-dag';

export interface Shape {
  /** Size and gap across the layers and along them. */
  size: [number, number];
  gap: [number, number];
  count: number;
  /** By position, from and to. */
  edges: [number, number][];
}

/** Straight lines take the square of what stands in a layer: larger graphs get the quick way. */
const STRAIGHT_MAX = 120;

/** The middle of each stage: across and along. */
export function layered({ size, gap, count, edges }: Shape): [number, number][] {
  const made = graph<number, undefined>();
  const nodes: MutGraphNode<number, undefined>[] = Array.from({ length: count }, (_nothing, at) => made.node(at));
  for (const [from, to] of edges) made.link(nodes[from]!, nodes[to]!, undefined);
  const shared = sugiyama().layering(layeringSimplex()).decross(decrossTwoLayer()).nodeSize(size).gap(gap);
  if (count <= STRAIGHT_MAX) shared.coord(coordSimplex())(made);
  else shared.coord(coordGreedy())(made);
  return nodes.map((node) => [node.x, node.y]);
}
